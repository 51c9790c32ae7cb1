"""Policies in the package: their size, and how often they are right."""

import random
from dataclasses import dataclass
from importlib.resources import files

import pytest

from sapo_client.lab.held_out import fresh_item, reward
from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import BUNDLED, BUNDLED_CHATTY, BUNDLED_SMALL, PACKAGED, load_policy
from sapo_verification.suites.catalogue import NANO_DEFAULT, family

ITEMS = 32
COMPLETIONS = 8


@dataclass(frozen=True)
class Rates:
    """Shares of right answers in one family.

    Attributes:
        sampled: at temperature 1.
        greedy: at temperature 0.
        informative: share of sampled groups in which some answers are right and some are not.
    """

    sampled: float
    greedy: float
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
        sampled, greedy = groups(name, 1.0), groups(name, 0.0)
        return Rates(
            sum(map(sum, sampled)) / (ITEMS * COMPLETIONS),
            sum(map(sum, greedy)) / ITEMS,
            sum(len(set(group)) > 1 for group in sampled) / ITEMS,
        )

    return {name: rates(name) for name in NANO_DEFAULT}


@pytest.fixture(scope="module")
def bundled() -> dict[str, Rates]:
    return rates_of(BUNDLED)


@pytest.mark.parametrize("model", PACKAGED)
def test_packaged_policies_are_small(model: str) -> None:
    sizes = [len(entry.read_bytes()) for entry in (files("sapo_client") / "models" / model).iterdir()]
    assert 300_000 < sum(sizes) <= 4 * 2**20


def test_at_least_five_families_are_the_default() -> None:
    assert len(NANO_DEFAULT) >= 5


def test_the_bundled_policy_is_sometimes_right_in_every_family(bundled: dict[str, Rates]) -> None:
    assert all(each.sampled > 0.01 for each in bundled.values()), bundled
    assert sum(0.15 <= each.sampled <= 0.5 for each in bundled.values()) >= 4, bundled


def test_the_bundled_policy_is_right_more_often_when_greedy(bundled: dict[str, Rates]) -> None:
    sampled, greedy, _ = means(bundled)
    assert 0.1 < sampled < 0.45
    assert greedy > sampled + 0.2


def test_the_chatty_policy_is_the_same_model_and_rarely_right() -> None:
    one, other = (load_policy(model, "cpu") for model in (BUNDLED, BUNDLED_CHATTY))
    assert one.tokenizer.get_vocab() == other.tokenizer.get_vocab()
    assert one.model.config.to_diff_dict() == other.model.config.to_diff_dict()
    sampled, greedy, informative = means(rates_of(BUNDLED_CHATTY))
    assert 0.005 < sampled < 0.05
    assert greedy < 0.1
    assert 0.03 < informative < 0.25


def test_the_small_policy_is_another_model_with_another_tokenizer() -> None:
    large, small = (load_policy(model, "cpu") for model in (BUNDLED_CHATTY, BUNDLED_SMALL))
    assert 4 * small.model.num_parameters() < large.model.num_parameters()
    prompt = "7 + 6 = ?"
    assert small.encode_prompt(prompt) != large.encode_prompt(prompt)
    sampled, _, informative = means(rates_of(BUNDLED_SMALL))
    assert 0.005 < sampled < 0.06
    assert 0.03 < informative < 0.3


def means(rates: dict[str, Rates]) -> tuple[float, float, float]:
    """Return means over families: sampled, greedy, informative."""
    columns = [(each.sampled, each.greedy, each.informative) for each in rates.values()]
    sampled, greedy, informative = (sum(column) / len(rates) for column in zip(*columns, strict=True))
    return sampled, greedy, informative
