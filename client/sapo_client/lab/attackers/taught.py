"""Damage of attackers to a learner that judges steps: demonstrations of honest accounts and of attackers.

The learner's own supervised steps, its buffer of texts and the judgement of accounts, without policy
optimisation, without a swarm and without rehearsal of known families: it takes minutes instead of hours, and
shows which attacks pass the judgement and their damage. Every honest account writes worked solutions, every
attacker the right answers of its attack; all write the same number of texts in each round.
`python -m sapo_client.lab.attackers.taught --help`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from sapo_client.lab.attackers.catalogue import ATTACKS, attack_named
from sapo_client.lab.attackers.questions import Knowledge, Questioner, is_right
from sapo_client.lab.held_out import HeldOut, fresh_item, pass_at_1
from sapo_client.lab.pretrain import KIND_B
from sapo_client.lab.worked.solutions import worked_solution
from sapo_client.learner.generate import generator_for
from sapo_client.learner.imitation.demonstrations import DemonstrationBuffer, DemonstrationText
from sapo_client.learner.imitation.supervised import Draw
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.sampling.sampler import filled_part
from sapo_verification.sampling.step_values import StepValue, StepValues
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

GROUP: Final = 8
"""Number of completions of an attacker's group; one right completion of each group is demonstrated."""


@dataclass(frozen=True, slots=True)
class TeachingPlan:
    """Settings of a run.

    Attributes:
        attack: name of the attack; empty for none.
        honest: number of accounts that write worked solutions.
        attackers: number of attackers' accounts.
        judged: whether accounts whose steps mislead are set aside.
        start: initial policy, as in `sapo join --model`.
        families: families that are demonstrated, at the level ``worked``.
        texts: number of texts of each account in a round.
        rounds: number of rounds.
        steps: maximum number of supervised steps of a round.
        every: number of rounds between evaluations.
        held_out_per_family: number of items per family.
        max_new_tokens: longest completion.
    """

    attack: str = ""
    honest: int = 7
    attackers: int = 5
    judged: int = 1
    start: str = "specialist-a"
    families: tuple[str, ...] = KIND_B
    texts: int = 12
    rounds: int = 25
    steps: int = 20
    every: int = 5
    held_out_per_family: int = 48
    max_new_tokens: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Taught:
    """A policy after a number of rounds.

    Attributes:
        steps: number of supervised steps so far.
        seconds: processor seconds of the training, without evaluations.
        policy: pass@1 at temperature 1 by family.
        honest_used: number of honest accounts' texts that the buffer accepted.
        attackers_used: the same for attackers.
        honest_set_aside: number of (honest account, family) pairs that are measured but not imitated.
        attackers_set_aside: the same for attackers.
    """

    round: int
    steps: int
    seconds: float
    policy: dict[str, float]
    honest_used: int
    attackers_used: int
    honest_set_aside: int
    attackers_set_aside: int


class _TeachingRun:
    """A new copy of the initial policy, and the accounts that teach it."""

    def __init__(self, plan: TeachingPlan) -> None:
        torch.manual_seed(plan.seed)
        self._plan = plan
        self._rng = random.Random(f"{plan.seed}/taught")
        self._policy = load_policy(plan.start, "cpu")
        self._generator = generator_for(self._policy)
        settings = LearnerSettings(
            plan.start, Path(), max_new_tokens=plan.max_new_tokens, bfloat16=False, shows_steps=True
        )
        self._trainer = Trainer(self._policy, settings)
        self._per_step = settings.demonstrations_per_step
        self._buffer = DemonstrationBuffer()
        self._values = StepValues()
        self._families = [family(name, "worked") for name in plan.families]
        self._held_out = HeldOut.of(self._families, plan.held_out_per_family)
        self._questioner = Questioner(GROUP)
        self._knowledge = Knowledge(self._families, (), plan.rounds)
        self._honest = [_account(number) for number in range(plan.honest)]
        attackers = plan.attackers if plan.attack else 0
        self._attackers = [_account(plan.honest + number) for number in range(attackers)]
        self._used: Counter[bool] = Counter()
        self._steps = 0

    def run(self) -> Iterator[Taught]:
        """Train, and yield an evaluation at every interval."""
        seconds = 0.0
        for done in range(1, self._plan.rounds + 1):
            self._knowledge.round = done - 1
            texts = self._round_texts()
            started = time.process_time()
            self._learn(texts)
            seconds += time.process_time() - started
            if done % self._plan.every == 0 or done == self._plan.rounds:
                yield self._evaluated(done, seconds)

    def _round_texts(self) -> list[DemonstrationText]:
        """Return all accounts' texts of a round in random order."""
        misleading, texts = self._misleading(), []
        for account in (*self._honest, *self._attackers):
            for _ in range(self._plan.texts):
                place = self._rng.randrange(len(self._families))
                part = filled_part(self._values, misleading, account, place) if self._plan.judged else 1.0
                if self._rng.random() >= part:
                    continue
                texts.append(self._text(account, place))
        self._rng.shuffle(texts)
        return texts

    def _text(self, account: Account, place: int) -> DemonstrationText:
        chosen = self._families[place]
        prompt, text = self._attack(chosen) if account in self._attackers else self._solution(chosen)
        steps, opened, rest = text.partition(OPEN_TAG)
        before = len(self._policy.encode_completion(steps + opened, sys.maxsize)) - 1 if steps else 0
        return DemonstrationText(
            self._policy.encode_prompt(prompt),
            self._policy.encode_completion(text, sys.maxsize),
            place,
            bytes(account),
            answer=rest.removesuffix(CLOSE_TAG).encode(),
            steps=before,
        )

    def _solution(self, chosen: Family) -> tuple[str, str]:
        while True:
            _, item = fresh_item(chosen, self._rng)
            if (text := worked_solution(chosen, item)) is not None:
                self._knowledge.remember(chosen, [text], 1.0)
                return item.prompt, text

    def _attack(self, chosen: Family) -> tuple[str, str]:
        """Return a prompt and a right answer of an attacker's group."""
        attack = ATTACKS[self._plan.attack]
        while True:
            _, item = fresh_item(chosen, self._rng)
            question = self._questioner.question(chosen, item)
            group = question and attack.compose(question, self._knowledge, self._rng)
            for text in group or ():
                if is_right(chosen, item, text.partition(OPEN_TAG)[2].removesuffix(CLOSE_TAG)):
                    return item.prompt, text

    def _learn(self, texts: Sequence[DemonstrationText]) -> None:
        """Judge a round's texts, buffer those of accounts that do not mislead, and train on random draws."""
        misleading = self._misleading()
        values = self._trainer.supervised.values(texts)
        unrelated = self._values.unrelated()
        self._values.learn(
            (
                (Account(text.author), text.family, StepValue(*value))
                for text, value in zip(texts, values, strict=True)
                if value is not None
            ),
            {account: 1.0 for account in (*self._honest, *self._attackers) if account not in unrelated},
        )
        self._buffer.forget_pairs({(bytes(account), place) for account, place in misleading})
        attackers = {bytes(account) for account in self._attackers}
        for text in texts:
            if (Account(text.author), text.family) not in misleading:
                self._buffer.add(text)
                self._used[text.author in attackers] += 1
        count = self._trainer.supervised.schedule.steps_for(len(self._buffer), self._per_step)
        count = min(count, self._plan.steps)
        self._trainer.supervised.steps([self._draw() for _ in range(count)])
        self._steps += count

    def _draw(self) -> Draw:
        needs = dict.fromkeys(range(len(self._families)), 1.0)
        return self._buffer.draw(needs, self._per_step, self._rng), ()

    def _misleading(self) -> frozenset[tuple[Account, int]]:
        return self._values.misleading() if self._plan.judged else frozenset()

    def _evaluated(self, done: int, seconds: float) -> Taught:
        plan = self._plan
        answers = self._held_out.sampled(
            self._policy, self._generator, max_new_tokens=plan.max_new_tokens, seed=plan.seed
        )
        set_aside = Counter(account in self._attackers for account, _ in self._misleading())
        return Taught(
            round=done,
            steps=self._steps,
            seconds=round(seconds, 1),
            policy=pass_at_1(answers),
            honest_used=self._used[False],
            attackers_used=self._used[True],
            honest_set_aside=set_aside[False],
            attackers_set_aside=set_aside[True],
        )


def _account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def teach(plan: TeachingPlan) -> Iterator[Taught]:
    """Train a new copy of the initial policy on honest accounts' and attackers' texts; yield its evaluations.

    Raises:
        SapoError: there is no such attack, or the initial policy cannot be loaded.
    """
    if plan.attack:
        attack_named(plan.attack)
    return _TeachingRun(plan).run()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the training; print one JSON line per evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in asdict(TeachingPlan()).items():
        text = ",".join(value) if isinstance(value, tuple) else value
        parser.add_argument("--" + name.replace("_", "-"), type=type(text), default=text)
    chosen = vars(parser.parse_args(arguments))
    chosen["families"] = tuple(chosen["families"].split(","))
    plan = TeachingPlan(**chosen)
    torch.set_num_threads(1)
    for taught in teach(plan):
        sys.stdout.write(json.dumps(asdict(taught)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
