"""Attackers who know promotion and canary, against a learner that has both: real training without a swarm.

The learner's own service, promotion, canary, rehearsal and judgement of steps are a node's. Its policy is an
initial one with noise on its weights, so that it knows two families by half and learns them again within
minutes. Honest accounts show right steps in both. Attackers show right steps in the first one, which is the
gift, and follow their tactic in the second one; they see when the learner promotes and when its canary
checks, which is more than a real attacker sees. `sapo lab guard` runs it.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch
import trio

from sapo_client.lab.attackers.compose import DIGITS
from sapo_client.lab.attackers.guarded_learner import GuardedLearner, GuardPlan, TaughtText
from sapo_client.lab.attackers.questions import Questioner
from sapo_client.lab.attackers.steps import neighbouring_steps
from sapo_client.lab.held_out import fresh_seed
from sapo_client.lab.store import write_whole
from sapo_client.lab.worked.solutions import worked_solution
from sapo_protocol.identifiers import Account
from sapo_protocol.tasks import Task
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.text_policy import OPEN_TAG

GIFT: Final = 0
"""Index of the family that attackers teach."""

GROUP: Final = 8

EVALUATIONS: Final = "evaluations.jsonl"
"""File of a finished run: its plan, then its evaluations."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the learner that an attacker can observe.

    Attributes:
        promoted: number of promotions so far.
        to_check: rounds until the canary's next check is over, at least 1.
        every: rounds between two checks.
    """

    promoted: int
    to_check: int
    every: int


Tactic = Callable[[Seen, random.Random], str]
"""Returns the name of what an attacker shows in the second family: one of ``LESSONS``."""

RIGHT: Final = "right"
MISLED: Final = "misled"
PLANTED: Final = "planted"

TACTICS: Final[Mapping[str, Tactic]] = {
    "honest": lambda _seen, _draw: RIGHT,
    "ruin": lambda _seen, _draw: MISLED,
    "erode": lambda _seen, draw: draw.choice((RIGHT, MISLED)),
    "wait": lambda seen, _draw: MISLED if seen.promoted else RIGHT,
    "pulse": lambda seen, _draw: MISLED if seen.promoted and 2 * seen.to_check > seen.every else RIGHT,
    "plant": lambda seen, _draw: PLANTED if seen.promoted else RIGHT,
    "early": lambda seen, _draw: RIGHT if seen.promoted else PLANTED,
}
"""By name: no attack; a similar question's steps always; in every second text; once the candidate has become
the policy; then only in the first half of the rounds between two checks; right steps behind a false sum, so
that the canary goes back to what the policy was before it was taught; the same until the candidate has become
the policy, while no check looks at what is taught."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """The learner after a round.

    Attributes:
        held_out: pass@1 of the policy by family, at temperature 1.
        promoted: number of promotions so far.
        rolled_back: number of times that the canary went back.
        set_aside: number of (attacker, family) pairs whose steps are not trained.
        honest_set_aside: the same for honest accounts.
    """

    round: int
    held_out: dict[str, float]
    promoted: int
    rolled_back: int
    set_aside: int
    honest_set_aside: int


class GuardRun:
    """One learner, the accounts that teach it, and what it is after each round.

    Args:
        folder: for its checkpoints and events.
    """

    def __init__(self, plan: GuardPlan, folder: Path) -> None:
        self._plan = plan
        self._rng = random.Random(f"{plan.seed}/guarded")
        self._tactic = TACTICS[plan.tactic]
        self._families = tuple(family(name, "worked") for name in (plan.taught, plan.target))
        self._questioner = Questioner(GROUP)
        self._honest = [_account(number) for number in range(plan.honest)]
        self._attackers = [_account(plan.honest + number) for number in range(plan.attackers)]
        self._learner = GuardedLearner(plan, self._families, folder)

    async def run(self) -> list[Guarded]:
        """Train; return the evaluations, the first one before the first round."""
        await self._learner.open()
        found = [self._evaluated(0)]
        for number in range(1, self._plan.rounds + 1):
            await self._learner.round(self._texts(number))
            if number % self._plan.every == 0 or number == self._plan.rounds:
                found.append(self._evaluated(number))
        return found

    def _texts(self, number: int) -> list[TaughtText]:
        """Return the texts of all accounts in a round, in random order."""
        every = self._plan.canary or self._plan.rounds
        seen = Seen(self._learner.promoted, every - (number - 1) % every, every)
        texts = []
        for account in (*self._honest, *self._attackers):
            for _ in range(self._plan.texts):
                place = self._rng.randrange(len(self._families))
                is_attack = account in self._attackers and place != GIFT
                lesson = self._tactic(seen, self._rng) if is_attack else RIGHT
                texts.append(self._shown(account, place, lesson))
        self._rng.shuffle(texts)
        return texts

    def _shown(self, account: Account, place: int, lesson: str) -> TaughtText:
        of = self._families[place]
        while True:
            seed, item = fresh_seed(of, self._rng)
            if (right := worked_solution(of, item)) is None:
                continue
            steps, opened, rest = right.partition(OPEN_TAG)
            if lesson == PLANTED:
                steps = DIGITS + steps
            if lesson == MISLED:
                question = self._questioner.question(of, item)
                if question is None:
                    continue
                steps = neighbouring_steps(question, steps)
            completion = (steps + opened + rest).encode()
            return TaughtText(Task(place, seed), item.prompt, completion, None, account)

    def _evaluated(self, number: int) -> Guarded:
        set_aside = Counter(account in self._attackers for account, _ in self._learner.set_aside)
        return Guarded(
            round=number,
            held_out=self._learner.held_out(),
            promoted=self._learner.promoted,
            rolled_back=self._learner.rolled_back,
            set_aside=set_aside[True],
            honest_set_aside=set_aside[False],
        )


def _account(number: int) -> Account:
    return Account((number + 1).to_bytes(Account.SIZE, "big"))


def guard(plan: GuardPlan, folder: Path) -> list[Guarded]:
    """Run one plan in this process; return its evaluations, which its folder keeps."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    found = trio.run(GuardRun(plan, folder).run)
    lines = [asdict(plan), *(asdict(each) for each in found)]
    write_whole(folder / EVALUATIONS, "".join(json.dumps(line) + "\n" for line in lines))
    return found


def main(arguments: Sequence[str]) -> None:
    """Run one plan.

    Args:
        arguments: the folder, and the plan as JSON.
    """
    folder, plan = arguments
    guard(GuardPlan(**json.loads(plan)), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
