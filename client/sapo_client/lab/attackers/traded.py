"""Attackers who teach one family and ruin another: which candidate becomes the policy, by training.

A learner's own supervised steps, candidate, rehearsal and promotion, without a swarm. Its policy is the
initial one with noise on its weights, so that it knows a family by half and texts of it are taken. Every text
has the right answer: with right steps in the family that is taught, with those of a similar question in the
family that is to be lost (``neighbour-steps``). `python -m sapo_client.lab.attackers.traded --help`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch
import trio

from sapo_client.lab.attackers.questions import Knowledge, Questioner
from sapo_client.lab.attackers.steps import neighbour_steps
from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.held_out import HeldOut, fresh_item, pass_at_1
from sapo_client.lab.worked.solutions import worked_solution
from sapo_client.learner.generate import generator_for
from sapo_client.learner.imitation.demonstrations import OWN, DemonstrationText
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_client.node.training.promotion import Promotion
from sapo_client.observe.events import EventLog
from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.text_policy import OPEN_TAG

ATTACKER: Final = b"attacker"
GROUP: Final = 8
TEXTS: Final = 256
"""Texts of each family, and own answers; about as many as half a dozen accounts show in ten rounds."""


@dataclass(frozen=True, slots=True)
class TradePlan:
    """Settings of a run.

    Attributes:
        start: initial policy, as in `sapo join --model`.
        noise: standard deviation of the noise on each matrix, as a part of that of its weights.
        taught: family that is taught with right steps.
        ruined: family with steps of similar questions; empty: this family is not shown, which is the control.
        kept: further family that the policy knows and that nobody shows.
        rounds: number of rounds, each with one comparison.
        steps: supervised steps of a round.
        texts: texts of a step; as many own right answers are rehearsed.
        held_out: items of each family at the end.
    """

    start: str = "specialist-a"
    noise: float = 0.25
    taught: str = "calendar_arithmetic"
    ruined: str = "fraction_simplification"
    kept: str = "basic_arithmetic"
    rounds: int = 10
    steps: int = 12
    texts: int = 32
    held_out: int = 48
    max_new_tokens: int = 96
    seed: int = 0


class _Learner:
    """A policy with a candidate; the part of a learner that a promotion needs."""

    def __init__(self, plan: TradePlan) -> None:
        self._plan = plan
        self.policy = load_policy(plan.start, "cpu")
        noise = torch.Generator().manual_seed(plan.seed)
        with torch.no_grad():
            for weight in self.policy.model.parameters():
                if weight.dim() > 1:
                    weight.add_(plan.noise * weight.std() * torch.randn(weight.shape, generator=noise))
        self._generator = generator_for(self.policy)
        settings = LearnerSettings(
            plan.start,
            Path(),
            max_new_tokens=plan.max_new_tokens,
            shows_steps=True,
            held_back=True,
            demonstrations_per_step=plan.texts,
        )
        self.supervised = Trainer(self.policy, settings).supervised
        self.promoted = 0

    def answers(self, prompts: Sequence[str], seed: int) -> tuple[bytes, ...]:
        """Return one completion of the present weights per prompt."""
        groups = self._generator.sample(
            [self.policy.encode_prompt(prompt) for prompt in prompts],
            completions_per_prompt=1,
            max_new_tokens=self._plan.max_new_tokens,
            temperature=1.0,
            seed=seed,
        )
        return tuple(group[0].text.encode("utf-8", "replace") for group in groups)

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """See ``Candidates``."""
        of_policy = self.answers(prompts, seed)
        with self.supervised.weights.candidate_in_place():
            return of_policy, self.answers(prompts, seed + 1)

    async def promote(self) -> None:
        """Count it; the policy stays, so that later comparisons show what the candidate becomes."""
        self.promoted += 1

    def text(self, place: int, author: bytes, prompt: str, completion: str) -> DemonstrationText:
        """Return a text as token ids."""
        return DemonstrationText(
            self.policy.encode_prompt(prompt),
            self.policy.encode_completion(completion, sys.maxsize),
            place,
            author,
            answer=completion.partition(OPEN_TAG)[2].encode(),
        )


class TradeRun:
    """One learner beside attackers."""

    def __init__(self, plan: TradePlan, folder: Path) -> None:
        self._plan = plan
        self._rng = random.Random(f"{plan.seed}/traded")
        names = (plan.kept, plan.ruined or TradePlan().ruined, plan.taught)
        self._families = tuple(family(name, "worked") for name in names)
        self._learner = _Learner(plan)
        self._log = folder / "events.jsonl"
        self._promotion = Promotion(
            self._learner,
            LocalChecker(self._families),
            EventLog(self._log, clock=lambda: 0.0),
            families=len(self._families),
            tasks=64,
            rng=self._rng,
        )

    async def run(self) -> dict[str, object]:
        """Train; return the comparisons, and what policy and candidate can do at the end."""
        kept, ruined, taught = self._families
        texts = [self._shown(2, self._worked(taught)) for _ in range(TEXTS)]
        if self._plan.ruined:
            texts += [self._shown(1, self._misled(ruined)) for _ in range(TEXTS)]
        own = self._own_answers((kept, ruined))
        weights = self._learner.supervised.weights
        for number in range(1, self._plan.rounds + 1):
            draws = [self._draw(texts, own) for _ in range(self._plan.steps)]
            self._learner.supervised.steps(draws)
            if weights.is_comparable:
                await self._promotion.after(number, has_candidate=True)
        held_out = HeldOut.of(self._families, self._plan.held_out)
        before, after = await self._learner.compare(held_out.prompts, seed=self._plan.seed)
        return {
            "compared": [json.loads(line) for line in self._log.read_text().splitlines()],
            "policy": pass_at_1(held_out.scored(before)),
            "candidate": pass_at_1(held_out.scored(after)),
            "promoted": self._learner.promoted,
        }

    def _draw(
        self, texts: Sequence[DemonstrationText], own: Sequence[DemonstrationText]
    ) -> tuple[list[DemonstrationText], list[DemonstrationText]]:
        return self._rng.sample(texts, self._plan.texts), self._rng.sample(
            own, min(len(own), self._plan.texts)
        )

    def _shown(self, place: int, shown: tuple[str, str]) -> DemonstrationText:
        return self._learner.text(place, ATTACKER, *shown)

    def _worked(self, of: Family) -> tuple[str, str]:
        while True:
            _, item = fresh_item(of, self._rng)
            if (solution := worked_solution(of, item)) is not None:
                return item.prompt, solution

    def _misled(self, of: Family) -> tuple[str, str]:
        """Return a prompt, and the right answer behind a similar question's steps."""
        asker, knowledge = Questioner(GROUP), Knowledge([of], (), 1)
        while True:
            _, item = fresh_item(of, self._rng)
            question = asker.question(of, item)
            group = question and neighbour_steps(question, knowledge, self._rng)
            for text in group or ():
                if question is not None and text.endswith(question.completion("", question.right)):
                    return item.prompt, text

    def _own_answers(self, known: Sequence[Family]) -> list[DemonstrationText]:
        """Return own right answers in the families that the policy knows, as a node rehearses them."""
        items = [fresh_item(of, self._rng) for of in known for _ in range(TEXTS // 2)]
        asked = HeldOut(tuple(items))
        found = asked.scored(self._learner.answers(asked.prompts, self._plan.seed))
        return [
            self._learner.text(known.index(each.family), OWN, each.item.prompt, each.text)
            for each in found
            if each.reward == 1.0
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one training; print its result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in asdict(TradePlan()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    plan = TradePlan(**vars(parser.parse_args(arguments)))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(trio.run(partial(TradeRun(plan, Path(folder)).run))) + "\n")


if __name__ == "__main__":
    main()
