"""The held-out set: the same items for every arm, seed and round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item, Underivable, derive
from sapo_verification.tasks.scorers import score

if TYPE_CHECKING:
    from sapo_client.learner.generate import Generator
    from sapo_client.learner.policy import Policy
    from sapo_client.learner.service import Service

SEED_BITS: Final = 31


@dataclass(frozen=True, slots=True)
class HeldOutAnswer:
    """One answer to an item of the set.

    Attributes:
        text: the completion; incomplete UTF-8 characters are replaced.
        reward: 0.0 or 1.0.
    """

    family: Family
    item: Item
    text: str
    reward: float

    @property
    def has_text(self) -> bool:
        """Whether its family allows text around the answer."""
        return self.family.answer == "tag"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Items for evaluation only.

    Families of the nano level are small, so most of these items also occur in training.
    """

    items: tuple[tuple[Family, Item], ...]

    @classmethod
    def of(cls, families: Sequence[Family], per_family: int) -> HeldOut:
        """Return a set with ``per_family`` items of every family."""
        draw = random.Random("held out")
        return cls(tuple(fresh_item(family, draw) for family in families for _ in range(per_family)))

    @property
    def prompts(self) -> list[str]:
        """One prompt per item."""
        return [item.prompt for _, item in self.items]

    def answers(self, service: Service, temperature: float, seed: int) -> tuple[HeldOutAnswer, ...]:
        """Return one scored answer per item, sampled with a seed."""
        return self.scored(service.evaluate(self.prompts, temperature, seed)["completions"])

    def sampled(
        self, policy: Policy, generator: Generator, *, max_new_tokens: int, seed: int
    ) -> tuple[HeldOutAnswer, ...]:
        """Return one scored answer per item, sampled at temperature 1."""
        groups = generator.sample(
            [policy.encode_prompt(prompt) for prompt in self.prompts],
            completions_per_prompt=1,
            max_new_tokens=max_new_tokens,
            temperature=1.0,
            seed=seed,
        )
        return self.scored([group[0].text.encode("utf-8", "replace") for group in groups])

    def scored(self, completions: Sequence[bytes]) -> tuple[HeldOutAnswer, ...]:
        """Return one completion per item as scored answers."""
        return tuple(
            HeldOutAnswer(
                family,
                item,
                text=completion.decode("utf-8", errors="replace"),
                reward=score(family, extract(family, completion), item.entry),
            )
            for (family, item), completion in zip(self.items, completions, strict=True)
        )


def pass_at_1(answers: Sequence[HeldOutAnswer]) -> dict[str, float]:
    """Return the share of right answers by family."""
    rewards: dict[str, list[float]] = {}
    for answer in answers:
        rewards.setdefault(answer.family.name, []).append(answer.reward)
    return {name: sum(values) / len(values) for name, values in rewards.items()}


def reward(family: Family, item: Item, text: str) -> float:
    """Return the reward of a completion's text, 0.0 or 1.0."""
    return score(family, extract(family, text.encode("utf-8", errors="replace")), item.entry)


def fresh_item(family: Family, draw: random.Random) -> tuple[Family, Item]:
    """Return a family with an item at a random seed."""
    return family, fresh_seed(family, draw)[1]


def fresh_seed(family: Family, draw: random.Random) -> tuple[int, Item]:
    """Return a random seed at which a family has an item, and the item."""
    while True:
        seed = draw.getrandbits(SEED_BITS)
        try:
            return seed, derive(family, seed)
        except Underivable:
            continue
