"""The policy in the package: small enough, right often enough, with room to learn."""

import random
from importlib.resources import files

import pytest

from sapo_client.lab.trial import fresh_item, reward
from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import load_policy
from sapo_verification.catalogue import NANO_DEFAULT, family

ITEMS = 32


@pytest.fixture(scope="module")
def rates() -> dict[str, tuple[float, float]]:
    """Share of right answers per family: sampled at temperature 1, and the likeliest."""
    policy = load_policy("bundled", "cpu")
    generator = generator_for(policy)

    def rate(name: str, temperature: float) -> float:
        chosen, draw = family(name, "nano"), random.Random(name)
        items = [fresh_item(chosen, draw)[1] for _ in range(ITEMS)]
        groups = generator.sample(
            [policy.encode_prompt(item.prompt) for item in items],
            completions_per_prompt=8 if temperature else 1,
            max_new_tokens=32,
            temperature=temperature,
            seed=1,
        )
        paid = [
            reward(chosen, item, one.text) for item, group in zip(items, groups, strict=True) for one in group
        ]
        return sum(paid) / len(paid)

    return {name: (rate(name, 1.0), rate(name, 0.0)) for name in NANO_DEFAULT}


def test_it_is_small():
    sizes = [entry.stat().st_size for entry in (files("sapo_client") / "models" / "bundled").iterdir()]
    assert 1_000_000 < sum(sizes) <= 4 * 2**20


def test_at_least_five_families_are_the_default():
    assert len(NANO_DEFAULT) >= 5


def test_it_solves_its_share_of_every_family(rates):
    assert all(sampled > 0.01 for sampled, _ in rates.values()), rates
    assert sum(0.15 <= sampled <= 0.5 for sampled, _ in rates.values()) >= 4, rates


def test_it_knows_more_than_it_says(rates):
    sampled, likeliest = (sum(column) / len(rates) for column in zip(*rates.values(), strict=True))
    assert 0.1 < sampled < 0.45
    assert likeliest > sampled + 0.2
