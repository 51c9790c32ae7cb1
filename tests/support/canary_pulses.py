"""Attackers who harm the policy each time that the canary lets their text in: what the node still learns.

`PYTHONPATH=$PYTHONPATH:tests python -m support.canary_pulses --seeds 6` prints the table of
docs/adr/learner-harm-rates.md. The canary is a node's; policies are right with chances that text of others
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
from support.simulated_policies import SimulatedPolicies, simulated_canary
from support.swarm import Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

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


@dataclass(frozen=True, slots=True)
class Seen:
    """What attackers see.

    Attributes:
        used: the attackers whose text is used now, by number.
        returned: how often the canary went back.
        kept: whether the policy has become its own shadow since.
        comparisons: checks since policy and shadow were equal.
        attackers: number of all attackers.
        honest: part of the honest accounts whose text is used now.
        check: number of the check, from 0.
        draw: random numbers that the attackers share.
    """

    used: Collection[int]
    returned: int
    kept: bool
    comparisons: int
    attackers: int
    honest: float
    check: int
    draw: random.Random

    @property
    def in_turn(self) -> list[int]:
        """The attacker whose turn it is to harm, if its text is used."""
        return [each for each in self.used if each == self.returned % self.attackers]


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
    "another one each time": lambda seen: (seen.in_turn, (0,)),
    "another one each time, once the policy is its own shadow": lambda seen: (
        seen.in_turn if seen.kept else (),
        (0,),
    ),
    "each in one check of ten": lambda seen: (
        [each for each in seen.used if seen.draw.random() < 0.1],
        (0,),
    ),
    "each from forty checks later on": lambda seen: (
        [each for each in seen.used if seen.check >= 40 * each],
        (0,),
    ),
    "beside all honest accounts": lambda seen: (seen.used if seen.honest == 1.0 else (), (0,)),
}


class Taught(SimulatedPolicies):
    """Policies that text of others and own training change.

    Attributes:
        was_kept: whether the policy became the shadow since the shadow last became the policy.
    """

    def __init__(self, checker: SelfScored, rng: random.Random) -> None:
        super().__init__(checker, [START] * len(NAMES), [START] * len(NAMES), rng)
        self.was_kept = False

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

    async def keep_good(self) -> None:
        await super().keep_good()
        self.was_kept = True

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        await super().roll_back(planters)
        self.was_kept = False


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
        leaves: attackers show text only until the policy has become its own shadow for the first time. The
            learner holds this text until their accounts wait, and it does harm from then on. Scapegoats are
            new ones each time that the policy becomes its own shadow, too.
        mishaps: probability with which a family is harmed by chance in a check's rounds of training.
    """

    attack: str
    honest: int = 8
    attackers: int = 2
    needed: int = 1
    fresh: bool = False
    scapegoats: int = 0
    leaves: bool = False
    mishaps: float = 0.0
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
        self._has_left = False
        self._forgotten: set[Account] = set()
        self._check = 0
        self._rng = random.Random(f"{plan.seed}/attackers")
        desk = VerificationHarness((OWN,), manifest=manifest)
        self._sampler = desk.sampler
        self.canary = simulated_canary(folder, desk, self.learner, secret=b"secret %d" % plan.seed)

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
        generation = self.learner.returned if plan.fresh else 0
        of_attackers = [_account(1000 * (generation + 1) + number) for number in range(plan.attackers)]
        honest = [each for each in map(_account, range(plan.honest)) if self._is_used(each)]
        used = [number for number, each in enumerate(of_attackers) if self._is_used(each)]
        if plan.leaves:
            self._has_left |= self.learner.was_kept
            self._forgotten |= {account for account, _ in self._sampler.quarantine}
            used = [number for number, each in enumerate(of_attackers) if each not in self._forgotten]
        watch = self.canary._watch
        assert watch is not None
        taught = part * len(honest) / max(1, plan.honest)
        seen = Seen(
            used=used,
            returned=self.learner.returned,
            kept=self.learner.was_kept,
            comparisons=watch.comparisons,
            attackers=plan.attackers,
            honest=taught,
            check=self._check,
            draw=self._rng,
        )
        self._check += 1
        harming, families = self._attack(seen)
        if plan.leaves and not self._has_left:
            harming = ()
        harmed = families if len(harming) >= plan.needed else ()
        found.attacked += bool(harmed)
        if self._rng.random() < plan.mishaps:
            harmed = (self._rng.randrange(len(NAMES)),)
        found.taught.append(taught)
        self.learner.train(taught, harmed, part)
        new = self.learner.returned + 1 + (self.learner.kept if plan.leaves else 0)
        scapegoats = [
            each
            for each in (_account(10**6 * new + number) for number in range(plan.scapegoats))
            if self._is_used(each)
        ]
        shown = [] if self._has_left else [of_attackers[number] for number in used]
        self._batch = _batch([*honest, *scapegoats, *shown])

    def _is_used(self, account: Account) -> bool:
        """Whether the node uses text of this account now."""
        found = self._sampler.weigh((account,), 0)
        return bool(self._sampler.opening) and account in (*found.weights, *found.newcomers)


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


def _rows() -> list[tuple[str, Plan]]:
    """Return the table's rows with their names."""
    rows = [
        ("alone, without text of others", Plan("none", honest=0, attackers=0)),
        ("no attackers", Plan("none", attackers=0)),
        ("no attackers, a family lost by chance in one check of 50", Plan("none", attackers=0, mishaps=0.02)),
    ]
    of_ten = ((1, 1, 8), (2, 1, 8), (3, 1, 7), (4, 2, 8))
    for name in ATTACKS:
        for attackers, needed, honest in of_ten if name != "none" else ():
            plan = Plan(name, honest=honest, attackers=attackers, needed=needed)
            rows.append((f"{name}: {needed} of {attackers}", plan))
    fresh = Plan("one family", fresh=True)
    late = replace(fresh, attack="once the policy is its own shadow")
    left = Plan("one family", leaves=True, scapegoats=1)
    return [
        *rows,
        ("one family: 7 of ten accounts", Plan("one family", honest=3, attackers=7)),
        ("one family: 2 new accounts each time", fresh),
        ("once the policy is its own shadow: 2 new accounts each time", late),
        ("one family: 1, and 2 new accounts that teach", Plan("one family", attackers=1, scapegoats=2)),
        ("one family: 2 that have left, and 1 new account that teaches", left),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--checks", type=int, default=200)
    parser.add_argument("--row", default="", help="only rows whose names hold this text")
    given = parser.parse_args()
    for name, plan in _rows():
        if given.row not in name:
            continue
        cells = _cells([replace(plan, checks=given.checks, seed=seed) for seed in range(given.seeds)])
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
