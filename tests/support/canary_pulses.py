"""Attackers who harm the policy each time that the canary lets their text in: what the node still learns.

`PYTHONPATH=$PYTHONPATH:tests python -m support.canary_pulses --seeds 6` prints the table of
docs/adr/learner-accounts-wait.md. The canary is a node's; policies are right with chances that text of others
and own training change by fixed rules. Attackers see whose text the node uses and when its policy becomes its
own shadow, which is more than real ones see, and as few of them as are needed ruin a whole family.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Final

import trio
from support.self_scored import SelfScored
from support.swarm import Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.observe.events import EventLog
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.sampling.sampler import OPEN
from sapo_verification.types import Demonstration, SampledBatch

OWN = Identity(1)
NAMES: Final = (
    "basic_arithmetic",
    "fraction_simplification",
    "calendar_arithmetic",
    "decimal_arithmetic",
    "binary_matrix",
)
START: Final = 0.3
LIMIT: Final = 0.8
"""What training can reach in a family."""

TAUGHT: Final = 0.05
"""Part of the way to ``LIMIT`` that honest text takes the policy in a check's rounds if all is used."""

ALONE: Final = 0.002
"""The same for own training."""

LEFT: Final = 0.3
"""Part of a family that a check's rounds of attack leave, if all text is used."""

ALIKE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Seen:
    """What attackers see.

    Attributes:
        used: the attackers whose text is used now, by number.
        returned: how often the canary went back.
        kept: whether the policy has become its own shadow since.
        comparisons: checks since policy and shadow were equal.
    """

    used: Collection[int]
    returned: int
    kept: bool
    comparisons: int


Attack = Callable[[Seen], tuple[Collection[int], Collection[int]]]
"""Returns the attackers that harm now, and the families."""

EVERY: Final = range(len(NAMES))

ATTACKS: Final[dict[str, Attack]] = {
    "none": lambda _seen: ((), ()),
    "one family": lambda seen: (seen.used, (0,)),
    "the next family each time": lambda seen: (seen.used, (seen.returned % len(NAMES),)),
    "all families": lambda seen: (seen.used, EVERY),
    "late in a comparison": lambda seen: (seen.used if seen.comparisons > 14 else (), (0,)),
    "once the policy is its own shadow": lambda seen: (seen.used if seen.kept else (), (0,)),
}


class Taught:
    """A learner of whose policies only the chances of being right exist.

    Attributes:
        policy: chance of the policy, by family.
        good: that of its shadow.
    """

    def __init__(self, checker: SelfScored, rng: random.Random) -> None:
        self.policy = [START] * len(NAMES)
        self.good = list(self.policy)
        self.step = self.returned = 0
        self.was_kept = False
        self._checker, self._rng = checker, rng
        self._luck: list[float] = []

    def train(self, taught: float, harmed: Collection[int], part: float) -> None:
        """Change the chances by a check's rounds; families are harmed through their own text alone.

        Args:
            taught: part of all honest text that is used.
            harmed: families.
            part: of the attackers' text that is used.
        """
        self.step += 10
        for place, chance in enumerate(self.policy):
            self.good[place] += ALONE * (LIMIT - self.good[place])
            self.policy[place] += ALONE * (LIMIT - chance)
            if place in harmed:
                self.policy[place] *= LEFT**part
            else:
                self.policy[place] += TAUGHT * taught * (LIMIT - self.policy[place])

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        self._luck = [self._rng.random() for _ in prompts]
        return self._said(self.policy, self._luck)

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        luck = [one if self._rng.random() < ALIKE else self._rng.random() for one in self._luck]
        return self._said(self.good, luck)

    async def keep_good(self) -> None:
        self.good = list(self.policy)
        self.was_kept = True

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        self.policy = list(self.good)
        self.returned += 1
        self.was_kept = False

    def _said(self, chances: Sequence[float], luck: Sequence[float]) -> tuple[bytes, ...]:
        asked = self._checker.families[-len(luck) :]
        return tuple(
            b"right" if one < chances[each] else b"wrong" for each, one in zip(asked, luck, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Shown(Demonstration):
    """A right answer of an account.

    Attributes:
        author: its account.
    """

    author: Account

    @property
    def account(self) -> Account:
        """The author's account."""
        return self.author


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of a run.

    Attributes:
        honest: number of honest accounts.
        attackers: number of attackers.
        needed: attackers whose text has to be used for any harm.
        fresh: attackers have a new account after each time that the canary went back.
        scapegoats: accounts that harm nothing, new ones after each time that the canary went back.
    """

    attack: str
    honest: int = 8
    attackers: int = 2
    needed: int = 1
    fresh: bool = False
    scapegoats: int = 0
    checks: int = 200
    seed: int = 0


@dataclass
class Pulsed:
    """What became of a node.

    Attributes:
        attacked: checks before which attackers did harm.
        taught: part of the honest text that was used, by check.
        levels: of the policy, mean of the families, after each check.
        lowest: of the worst family.
    """

    returned: int = 0
    attacked: int = 0
    taught: list[float] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    lowest: list[float] = field(default_factory=list)


class Node:
    """A node's canary, the accounts that teach its policy, and attackers."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._attack = plan, ATTACKS[plan.attack]
        checker = SelfScored(NAMES)
        self.learner = Taught(checker, random.Random(plan.seed))
        limits = Limits(slots_per_epoch=2**20, max_completions=8, points_per_epoch=16)
        manifest = make_manifest(suite=make_suite("nano", NAMES), limits=limits)
        self._batch = _batch(())
        desk = VerificationHarness((OWN,), manifest=manifest)
        self._sampler = desk.sampler
        families = manifest.suite.families
        parts = CanaryParts(
            learner=self.learner,
            checkers=checker,
            sampler=desk.sampler,
            pool=desk.pool,
            demonstrations=desk.engine.demonstrations,
            events=EventLog(folder / "events.jsonl", clock=lambda: 0.0),
            file=CanaryFile(folder / "canary.json", families, fresh=True),
            secret=b"secret %d" % plan.seed,
            families=len(families),
        )
        self.canary = Canary(CanarySettings(every_rounds=1), parts)

    async def run(self) -> Pulsed:
        """Return what becomes of it."""
        await self.canary.open()
        self.learner.was_kept = False
        found = Pulsed()
        for _ in range(self._plan.checks):
            self._train(found)
            await self.canary.after(self._batch)
            found.levels.append(fmean(self.learner.policy))
            found.lowest.append(min(self.learner.policy))
        found.returned = self.learner.returned
        return found

    def _train(self, found: Pulsed) -> None:
        plan, part = self._plan, self._sampler.opening / OPEN
        waiting = {account for account, _ in self._sampler.quarantine}
        generation = self.learner.returned if plan.fresh else 0
        of_attackers = [_account(1000 * (generation + 1) + number) for number in range(plan.attackers)]
        honest = [each for each in map(_account, range(plan.honest)) if part and each not in waiting]
        used = [number for number, each in enumerate(of_attackers) if part and each not in waiting]
        watch = self.canary._watch
        assert watch is not None
        seen = Seen(used, self.learner.returned, self.learner.was_kept, watch.comparisons)
        harming, families = self._attack(seen)
        harmed = families if len(harming) >= plan.needed else ()
        found.attacked += bool(harmed)
        taught = part * len(honest) / max(1, plan.honest)
        found.taught.append(taught)
        self.learner.train(taught, harmed, part)
        scapegoats = [
            _account(10**6 * (self.learner.returned + 1) + number)
            for number in range(plan.scapegoats if part else 0)
        ]
        self._batch = _batch([*honest, *scapegoats, *(of_attackers[number] for number in used)])


def _account(number: int) -> Account:
    return Account((number + 1).to_bytes(Account.SIZE, "big"))


def _batch(accounts: Sequence[Account]) -> SampledBatch:
    shown = tuple(Shown(Task(0, 0), "", b"", None, each) for each in accounts)
    return SampledBatch(groups=(), demonstrations=shown)


def _cells(plans: Sequence[Plan]) -> list[str]:
    found = []
    for plan in plans:
        with tempfile.TemporaryDirectory() as folder:
            found.append(trio.run(Node(plan, Path(folder)).run))
    checks = plans[0].checks
    return [
        f"{fmean(each.attacked for each in found) / checks:.0%}",
        f"{fmean(each.returned for each in found):.1f}",
        f"{fmean(fmean(each.taught) for each in found):.0%}",
        f"{fmean(each.levels[-1] for each in found):.2f}",
        f"{fmean(fmean(each.levels) for each in found):.2f}",
        f"{fmean(each.lowest[-1] for each in found):.2f}",
        f"{fmean(fmean(each.lowest) for each in found):.2f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--checks", type=int, default=200)
    parser.add_argument("--row", default="", help="only rows whose names hold this text")
    given = parser.parse_args()
    rows = [("alone", Plan("none", honest=0, attackers=0)), ("nobody", Plan("none", attackers=0))]
    for name in ATTACKS:
        for attackers, needed in ((1, 1), (2, 1), (4, 2)):
            rows.append((f"{name}: {needed} of {attackers}", Plan(name, attackers=attackers, needed=needed)))
    rows.append(("one family: 2 new accounts each time", Plan("one family", fresh=True)))
    rows.append(
        ("one family: 1, and 2 new accounts that teach", Plan("one family", attackers=1, scapegoats=2))
    )
    for name, plan in rows:
        if given.row not in name or (plan.attack == "none" and plan.attackers):
            continue
        cells = _cells([replace(plan, checks=given.checks, seed=seed) for seed in range(given.seeds)])
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
