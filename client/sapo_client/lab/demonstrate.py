"""Effect of demonstrations alone: a policy is trained on solutions of families that it does not know.

The learner's own supervised steps, without policy optimisation and without a swarm. One author writes worked
solutions (``worked/solutions.py``), one the bare answer in its tags, which every node can get from the task
generator; a share of the texts may have the steps of other items. The policy also rehearses own right answers
that were sampled before. At regular intervals it reports pass@1 of the policy and of its student on both
kinds of families, and the value of honest steps, of other items' steps and of spliced steps for the policy.
`python -m sapo_client.lab.demonstrate --help`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import torch

from sapo_client.lab.corpus import Author
from sapo_client.lab.held_out import HeldOut, fresh_item, pass_at_1, reward
from sapo_client.lab.pretrain import KIND_A, KIND_B
from sapo_client.lab.worked.solutions import bare, worked_solution
from sapo_client.learner.generate import generator_for
from sapo_client.learner.imitation.demonstrations import OWN, DemonstrationText
from sapo_client.learner.imitation.supervised import Draw
from sapo_client.learner.policy import load_policy
from sapo_client.learner.report import TextValue
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_protocol.suite import Family
from sapo_verification.sampling.step_values import SPLITS, StepValue
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.generators import Item
from sapo_verification.tasks.text_policy import OPEN_TAG

Splice = Callable[[str, str], str]
"""Combines the texts of two items to one with the first item's answer."""

AUTHORS: Final[Mapping[str, Author]] = {"way": worked_solution, "bare": bare}

VALUED: Final = 40
"""Number of texts of each kind and family whose steps are valued."""


@dataclass(frozen=True, slots=True)
class DemonstrationPlan:
    """Settings that both authors share.

    Attributes:
        start: initial policy, as in `sapo join --model`.
        families: families that are demonstrated, at the level ``worked``.
        known: families of which own right answers are rehearsed.
        distinct: number of different texts of all demonstrated families together.
        own_answers: number of right answers to rehearse.
        misled: share of the texts that have the steps of another item.
        steps: number of supervised steps.
        every: number of steps between evaluations.
        texts: number of demonstrations in a step, and of own answers added to them.
        rate: learning rate.
        averaging: decay of the weight average that is the policy.
        held_out_per_family: number of items per family.
        max_new_tokens: longest completion.
    """

    start: str = "specialist-a"
    families: tuple[str, ...] = KIND_B
    known: tuple[str, ...] = KIND_A
    distinct: int = 6000
    own_answers: int = 600
    misled: float = 0.0
    steps: int = 600
    every: int = 100
    texts: int = 64
    rate: float = 2e-3
    averaging: float = 0.98
    held_out_per_family: int = 48
    max_new_tokens: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A policy after a number of supervised steps.

    Attributes:
        author: ``way`` or ``bare``.
        seconds: processor seconds of the training, without evaluations.
        policy: pass@1 at temperature 1 by family, for demonstrated and known ones.
        student: the same for the last weights, of which the policy is the average.
        honest: value of honest steps of new items, by demonstrated family; None for bare answers.
        misleading: the same for steps of other items.
        halves: the same for steps whose second half is another item's.
    """

    author: str
    steps: int
    seconds: float
    policy: dict[str, float]
    student: dict[str, float]
    honest: dict[str, StepValue] | None
    misleading: dict[str, StepValue] | None
    halves: dict[str, StepValue] | None


class _Demonstrator:
    """A new copy of the initial policy with its texts."""

    def __init__(self, plan: DemonstrationPlan, author: str) -> None:
        torch.manual_seed(plan.seed)
        self._plan = plan
        self._author = author
        self._rng = random.Random(f"{plan.seed}/demonstrations")
        self._policy = load_policy(plan.start, "cpu")
        self._generator = generator_for(self._policy)
        settings = LearnerSettings(
            plan.start,
            Path(),
            max_new_tokens=plan.max_new_tokens,
            bfloat16=False,  # the sampler's type; figures do not depend on the processor
            demonstrations_per_step=plan.texts,
            demonstration_rate=plan.rate,
            demonstration_averaging=plan.averaging,
        )
        self._trainer = Trainer(self._policy, settings)
        self._shown = [family(name, "worked") for name in plan.families]
        self._known = [family(name, "worked") for name in plan.known]
        self._held_out = HeldOut.of([*self._shown, *self._known], plan.held_out_per_family)
        self._texts = [self._text(self._shown[n % len(self._shown)]) for n in range(plan.distinct)]
        self._own = self._own_answers()

    def run(self) -> Iterator[Shown]:
        """Train, and yield an evaluation at every interval."""
        plan, seconds = self._plan, 0.0
        yield self._evaluated(0, seconds)
        for done in range(plan.every, plan.steps + 1, plan.every):
            started = time.process_time()
            self._trainer.supervised.steps([self._draw() for _ in range(plan.every)])
            seconds += time.process_time() - started
            yield self._evaluated(done, seconds)

    def _draw(self) -> Draw:
        texts = self._rng.sample(self._texts, min(self._plan.texts, len(self._texts)))
        return texts, self._rng.sample(self._own, min(self._plan.texts, len(self._own)))

    def _text(self, chosen: Family) -> DemonstrationText:
        return self._written(chosen, _foreign if self._rng.random() < self._plan.misled else None)

    def _written(self, chosen: Family, splice: Splice | None) -> DemonstrationText:
        """Return a text on a new item, combined with another item's text if a splice is given."""
        item, text = self._solved(chosen)
        if splice is not None:
            text = splice(text, self._solved(chosen)[1])
        steps, opened, _ = text.partition(OPEN_TAG)
        before = len(self._policy.encode_completion(steps + opened, sys.maxsize)) - 1 if steps else 0
        tokens = self._policy.encode_completion(text, sys.maxsize)
        prompt = self._policy.encode_prompt(item.prompt)
        return DemonstrationText(prompt, tokens, self._shown.index(chosen), b"author", steps=before)

    def _solved(self, chosen: Family) -> tuple[Item, str]:
        while True:
            _, item = fresh_item(chosen, self._rng)
            if (text := AUTHORS[self._author](chosen, item)) is not None:
                return item, text

    def _own_answers(self) -> list[DemonstrationText]:
        """Sample answers of the initial policy in the known families, and return the right ones."""
        found: list[DemonstrationText] = []
        while self._known and len(found) < self._plan.own_answers:
            posed = [
                fresh_item(self._rng.choice(self._known), self._rng) for _ in range(self._plan.texts * 4)
            ]
            groups = self._generator.sample(
                [self._policy.encode_prompt(item.prompt) for _, item in posed],
                completions_per_prompt=1,
                max_new_tokens=self._plan.max_new_tokens,
                temperature=1.0,
                seed=self._rng.getrandbits(62),
            )
            for (chosen, item), (answer,) in zip(posed, groups, strict=True):
                if reward(chosen, item, answer.text) == 1.0:
                    prompt = self._policy.encode_prompt(item.prompt)
                    found.append(DemonstrationText(prompt, answer.tokens, len(self._shown), OWN))
        return found[: self._plan.own_answers]

    def _evaluated(self, steps: int, seconds: float) -> Shown:
        supervised = self._trainer.supervised
        policy = self._pass_at_1()
        honest = misleading = halves = None
        if self._author == "way":
            honest, misleading, halves = (self._values(each) for each in (None, _foreign, _half_foreign))
        with supervised.weights.student_in_place():
            student = self._pass_at_1()
        return Shown(
            author=self._author,
            steps=steps,
            seconds=round(seconds, 1),
            policy=policy,
            student=student,
            honest=honest,
            misleading=misleading,
            halves=halves,
        )

    def _values(self, splice: Splice | None) -> dict[str, StepValue]:
        return {
            chosen.name: _mean(
                self._trainer.supervised.values([self._written(chosen, splice) for _ in range(VALUED)])
            )
            for chosen in self._shown
        }

    def _pass_at_1(self) -> dict[str, float]:
        plan = self._plan
        return pass_at_1(
            self._held_out.sampled(
                self._policy, self._generator, max_new_tokens=plan.max_new_tokens, seed=plan.seed
            )
        )


def _foreign(text: str, other: str) -> str:
    """Return the other text's steps and this one's answer."""
    return other.partition(OPEN_TAG)[0] + "".join(text.partition(OPEN_TAG)[1:])


def _half_foreign(text: str, other: str) -> str:
    """Return the first half of this text's steps, the second half of the other's, and this one's answer."""
    (own, *answer), (steps, *_) = text.partition(OPEN_TAG), other.partition(OPEN_TAG)
    return own[: len(own) // 2] + steps[len(steps) // 2 :] + "".join(answer)


def _mean(values: Sequence[TextValue | None]) -> StepValue:
    """Return the mean value of texts; a text without steps or without another prompt counts as 0."""
    known = [value or (0.0, (0.0,) * len(SPLITS)) for value in values]
    by_split = zip(*(dependence for _, dependence in known), strict=True)
    return StepValue(
        round(fmean(likelihood for likelihood, _ in known), 3),
        tuple(round(fmean(nats or 0.0 for nats in each), 3) for each in by_split),
    )


def demonstrate(plan: DemonstrationPlan, author: str) -> Iterator[Shown]:
    """Train a new copy of the initial policy on one author's solutions, and yield its evaluations.

    Raises:
        SapoError: the initial policy cannot be loaded.
    """
    return _Demonstrator(plan, author).run()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on each author's solutions; print one JSON line per evaluation."""
    defaults = DemonstrationPlan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--authors", default=",".join(AUTHORS))
    for name, value in asdict(defaults).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        parser.add_argument("--" + name.replace("_", "-"), type=type(text), default=text)
    chosen = vars(parser.parse_args(arguments))
    authors = chosen.pop("authors").split(",")
    names = {each: tuple(filter(None, chosen[each].split(","))) for each in ("families", "known")}
    plan = DemonstrationPlan(**{**chosen, **names})
    torch.set_num_threads(1)
    for author in authors:
        for shown in demonstrate(plan, author):
            sys.stdout.write(json.dumps(asdict(shown)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
