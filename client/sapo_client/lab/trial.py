"""A swarm of learners in one process: the learner's own sampler and trainer, without network and clock.

In every round each agent draws tasks at random, samples a group for each, and trains on its own groups and on
informative groups of the others from the same round. `python -m sapo_client.lab.trial --help`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from sapo_client.lab.held_out import fresh_item
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.generate import Completion, generator_for
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.precision import sampling_type
from sapo_client.learner.trainer import Trainer
from sapo_protocol.suite import Family
from sapo_verification.suites import catalogue
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item
from sapo_verification.tasks.scorers import score

HELD_OUT_PER_FAMILY: Final = 24


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Settings of one arm.

    Attributes:
        model: initial model of every agent.
        local: own groups per round, I of the paper.
        external: groups of others per round, J of the paper.
        learning_rate: learning rate of AdamW.
    """

    model: str
    families: tuple[str, ...]
    level: str = "nano"
    agents: int = 1
    local: int = 8
    external: int = 0
    completions: int = 8
    rounds: int = 100
    learning_rate: float = 1e-4
    temperature: float = 1.0
    max_new_tokens: int = 32
    length_normalised: bool = False
    bfloat16: bool = False
    seed: int = 0
    evaluate_every: int = 20


@dataclass(frozen=True, slots=True)
class Round:
    """Means of one round over the agents.

    Attributes:
        local: reward of own groups.
        batch: reward of all trained groups, as the paper plots it.
        held_out: share of right greedy answers on a fixed set, or None between evaluations.
        by_family: the same per family.
        skipped: share of groups without advantage.
        seconds: wall time per agent.
    """

    number: int
    local: float
    batch: float
    held_out: float | None
    by_family: dict[str, float]
    entropy: float
    skipped: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Sampled:
    item: Item
    family: Family
    group: tuple[Completion, ...]
    rewards: tuple[float, ...]


class TrialAgent:
    """A learner with its own stream of tasks."""

    def __init__(self, plan: TrialPlan, families: Sequence[Family], number: int) -> None:
        settings = LearnerSettings(
            model=plan.model,
            directory=Path(),
            learning_rate=plan.learning_rate,
            temperature=plan.temperature,
            max_new_tokens=plan.max_new_tokens,
            length_normalised=plan.length_normalised,
            bfloat16=plan.bfloat16,
        )
        self._plan = plan
        self._families = families
        self._policy = load_policy(plan.model, "cpu")
        self._generator = generator_for(
            self._policy, products=sampling_type(self._policy.device, plan.bfloat16)
        )
        self._trainer = Trainer(self._policy, settings)
        self._draw = random.Random(f"{plan.seed}/{number}")

    def sample(self) -> list[_Sampled]:
        """Sample the own groups of a round."""
        tasks = [fresh_item(self._draw.choice(self._families), self._draw) for _ in range(self._plan.local)]
        groups = self._generator.sample(
            [self._policy.encode_prompt(item.prompt) for _, item in tasks],
            completions_per_prompt=self._plan.completions,
            max_new_tokens=self._plan.max_new_tokens,
            temperature=self._plan.temperature,
            seed=self._draw.getrandbits(62),
        )
        return [
            _Sampled(item, family, tuple(group), tuple(reward(family, item, one.text) for one in group))
            for (family, item), group in zip(tasks, groups, strict=True)
        ]

    def train(self, own: Sequence[_Sampled], others: Sequence[_Sampled]) -> tuple[float, float, float, float]:
        """Train; return local reward, batch reward, entropy and the share of groups without advantage."""
        informative = [sampled for sampled in others if len(set(sampled.rewards)) > 1]
        drawn = self._draw.sample(informative, min(self._plan.external, len(informative)))
        groups = [self._own(sampled) for sampled in own] + [self._external(sampled) for sampled in drawn]
        report = self._trainer.step(groups)
        return report.local_reward, report.mean_reward, report.entropy, report.skipped_groups / len(groups)

    def evaluate(self, held_out: Sequence[tuple[Family, Item]]) -> list[float]:
        """Return the rewards of greedy answers."""
        prompts = [self._policy.encode_prompt(item.prompt) for _, item in held_out]
        groups = self._generator.sample(
            prompts,
            completions_per_prompt=1,
            max_new_tokens=self._plan.max_new_tokens,
            temperature=0.0,
            seed=0,
        )
        return [reward(*pair, group[0].text) for pair, group in zip(held_out, groups, strict=True)]

    def _own(self, sampled: _Sampled) -> TrainingGroup:
        return TrainingGroup(
            prompt=self._policy.encode_prompt(sampled.item.prompt),
            completions=tuple(completion.tokens for completion in sampled.group),
            rewards=sampled.rewards,
            external=False,
            behaviour=tuple(completion.logprobs for completion in sampled.group),
        )

    def _external(self, sampled: _Sampled) -> TrainingGroup:
        limit = self._plan.max_new_tokens
        return TrainingGroup(
            prompt=self._policy.encode_prompt(sampled.item.prompt),
            completions=tuple(self._policy.encode_completion(one.text, limit) for one in sampled.group),
            rewards=sampled.rewards,
            external=True,
            behaviour=None,
        )


def run(plan: TrialPlan) -> Iterator[Round]:
    """Execute one arm, and yield its rounds."""
    families = [catalogue.family(name, plan.level) for name in plan.families]
    agents = [TrialAgent(plan, families, number) for number in range(plan.agents)]
    draw = random.Random("held out")  # the same for every seed and arm
    held_out = [fresh_item(family, draw) for family in families for _ in range(HELD_OUT_PER_FAMILY)]
    for number in range(1, plan.rounds + 1):
        started = time.perf_counter()
        sampled = [agent.sample() for agent in agents]
        rows = [
            agent.train(own, [s for other in sampled if other is not own for s in other])
            for agent, own in zip(agents, sampled, strict=True)
        ]
        seconds = (time.perf_counter() - started) / len(agents)
        local, batch, entropy, skipped = (sum(column) / len(agents) for column in zip(*rows, strict=True))
        wanted = number == 1 or number % plan.evaluate_every == 0
        by_family = _held_out(agents, held_out) if wanted else {}
        mean = sum(by_family.values()) / len(by_family) if by_family else None
        yield Round(
            number=number,
            local=local,
            batch=batch,
            held_out=mean,
            by_family=by_family,
            entropy=entropy,
            skipped=skipped,
            seconds=seconds,
        )


def reward(family: Family, item: Item, text: str) -> float:
    """Return the checker's reward for a text."""
    return score(family, extract(family, text.encode("utf-8", errors="replace")), item.entry)


def _held_out(agents: Sequence[TrialAgent], held_out: Sequence[tuple[Family, Item]]) -> dict[str, float]:
    totals: dict[str, list[float]] = {}
    for agent in agents:
        for (family, _), value in zip(held_out, agent.evaluate(held_out), strict=True):
            totals.setdefault(family.name, []).append(value)
    return {name: sum(values) / len(values) for name, values in totals.items()}


def main() -> None:
    """Execute one arm from the command line; JSON lines on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = TrialPlan(model="bundled", families=catalogue.FAMILIES)
    parser.add_argument("--families", default=",".join(defaults.families))
    for name, value in asdict(defaults).items():
        if name == "families":
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(value), default=value)
    chosen = vars(parser.parse_args())
    torch.set_num_threads(1)
    plan = TrialPlan(**{**chosen, "families": tuple(chosen["families"].split(","))})
    for round_ in run(plan):
        sys.stdout.write(json.dumps(asdict(round_)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
