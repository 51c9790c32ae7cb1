"""The packaged specialists: each knows worked solutions of its own families, nothing of the other's."""

import pytest

from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.lab.pretrain import KIND_A, KIND_B
from sapo_client.learner.generate import generator_for
from sapo_client.learner.policy import SPECIALIST_A, SPECIALIST_B, load_policy
from sapo_verification.suites.catalogue import WORKED, family

ITEMS = 32


def sampled(model: str) -> dict[str, float]:
    """Return shares of right answers at temperature 1, by family."""
    policy = load_policy(model, "cpu")
    held_out = HeldOut.of([family(name, "worked") for name in WORKED], ITEMS)
    groups = generator_for(policy).sample(
        [policy.encode_prompt(prompt) for prompt in held_out.prompts],
        completions_per_prompt=1,
        max_new_tokens=100,
        temperature=1.0,
        seed=1,
    )
    return pass_at_1(held_out.scored([group[0].text.encode("utf-8", "replace") for group in groups]))


@pytest.mark.parametrize(
    ("model", "own", "others"), [(SPECIALIST_A, KIND_A, KIND_B), (SPECIALIST_B, KIND_B, KIND_A)]
)
def test_a_specialist_knows_its_own_families_only(
    model: str, own: tuple[str, ...], others: tuple[str, ...]
) -> None:
    shares = sampled(model)
    assert {name: shares[name] for name in others} == dict.fromkeys(others, 0.0)
    assert all(shares[name] > 0.02 for name in own), shares
    assert sum(shares[name] for name in own) / len(own) > 0.3, shares


def test_specialists_have_one_tokenizer_and_one_architecture() -> None:
    one, other = load_policy(SPECIALIST_A, "cpu"), load_policy(SPECIALIST_B, "cpu")
    assert one.tokenizer.get_vocab() == other.tokenizer.get_vocab()
    assert one.model.config.to_diff_dict() == other.model.config.to_diff_dict()


def test_tags_of_an_answer_are_single_tokens() -> None:
    policy = load_policy(SPECIALIST_A, "cpu")
    assert len(policy.encode_completion("<answer>7</answer>", 9)) == 4
