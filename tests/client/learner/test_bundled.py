"""The policies in the package: small enough, right often enough or seldom enough, with room to learn."""

import random
from dataclasses import dataclass
from importlib.resources import files

import pytest

from sapo_client.lab.trial import fresh_item, reward
from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import BUNDLED, BUNDLED_CHATTY, PACKAGED, load_policy
from sapo_verification.suites.catalogue import NANO_DEFAULT, family

ITEMS = 32
COMPLETIONS = 8


@dataclass(frozen=True)
class Rates:
    """Of one family: shares of right answers, sampled at temperature 1 and the likeliest.

    Attributes:
        informative: share of sampled groups in which some answers are right and some are not.
    """

    sampled: float
    likeliest: float
    informative: float


def rates_of(model: str) -> dict[str, Rates]:
    policy = load_policy(model, "cpu")
    generator = generator_for(policy)

    def groups(name: str, temperature: float) -> list[list[float]]:
        chosen, draw = family(name, "nano"), random.Random(name)
        items = [fresh_item(chosen, draw)[1] for _ in range(ITEMS)]
        sampled = generator.sample(
            [policy.encode_prompt(item.prompt) for item in items],
            completions_per_prompt=COMPLETIONS if temperature else 1,
            max_new_tokens=32,
            temperature=temperature,
            seed=1,
        )
        return [
            [reward(chosen, item, one.text) for one in group]
            for item, group in zip(items, sampled, strict=True)
        ]

    def rates(name: str) -> Rates:
        sampled, likeliest = groups(name, 1.0), groups(name, 0.0)
        return Rates(
            sum(map(sum, sampled)) / (ITEMS * COMPLETIONS),
            sum(map(sum, likeliest)) / ITEMS,
            sum(len(set(group)) > 1 for group in sampled) / ITEMS,
        )

    return {name: rates(name) for name in NANO_DEFAULT}


@pytest.fixture(scope="module")
def bundled() -> dict[str, Rates]:
    return rates_of(BUNDLED)


@pytest.mark.parametrize("model", PACKAGED)
def test_it_is_small(model):
    sizes = [entry.stat().st_size for entry in (files("sapo_client") / "models" / model).iterdir()]
    assert 1_000_000 < sum(sizes) <= 4 * 2**20


def test_at_least_five_families_are_the_default():
    assert len(NANO_DEFAULT) >= 5


def test_it_solves_its_share_of_every_family(bundled):
    assert all(each.sampled > 0.01 for each in bundled.values()), bundled
    assert sum(0.15 <= each.sampled <= 0.5 for each in bundled.values()) >= 4, bundled


def test_it_knows_more_than_it_says(bundled):
    sampled, likeliest, _ = means(bundled)
    assert 0.1 < sampled < 0.45
    assert likeliest > sampled + 0.2


def test_the_chatty_one_is_the_same_model_and_seldom_right():
    one, other = (load_policy(model, "cpu") for model in PACKAGED)
    assert one.tokenizer.get_vocab() == other.tokenizer.get_vocab()
    assert one.model.config.to_diff_dict() == other.model.config.to_diff_dict()
    sampled, likeliest, informative = means(rates_of(BUNDLED_CHATTY))
    assert 0.005 < sampled < 0.05
    assert likeliest < 0.1
    assert 0.03 < informative < 0.25


def means(rates: dict[str, Rates]) -> tuple[float, float, float]:
    """Over families alike: sampled, likeliest, informative."""
    columns = [(each.sampled, each.likeliest, each.informative) for each in rates.values()]
    sampled, likeliest, informative = (sum(column) / len(rates) for column in zip(*columns, strict=True))
    return sampled, likeliest, informative
