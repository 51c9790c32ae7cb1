"""Own success by family, and how own tasks are drawn by it."""

from support.rollouts import rollout_of
from support.swarm import Identity

from sapo_verification.sampling.own_success import GROUPS, MIN_CHANCE, OwnSuccess

ALICE, OWN = Identity(1), Identity(3)


def test_only_own_groups_count() -> None:
    success = OwnSuccess(OWN.account, 3)
    success.verified(rollout_of(OWN.account, 1, {b"a": 1.0, b"b": 0.0}))
    success.verified(rollout_of(OWN.account, 2, {b"a": 1.0, b"b": 1.0}))
    success.verified(rollout_of(ALICE.account, 3, {b"a": 0.0, b"b": 0.0}))
    success.verified(rollout_of(OWN.account, 4, {b"a": 0.0, b"b": 0.0}, family=1))
    assert [success.of(family) for family in range(3)] == [0.75, 0.0, 0.0]
    assert success.chances() == [0.5, MIN_CHANCE, 1.0], "4 p (1 - p) of groups; an unknown family is tried"


def test_a_family_without_mixed_groups_has_the_least_chance() -> None:
    """Half of all answers are right, but no group has right and wrong ones."""
    success = OwnSuccess(OWN.account, 2)
    for number in range(GROUPS):
        reward = float(number % 2)
        success.verified(rollout_of(OWN.account, number, {b"a": reward, b"b": reward}))
        success.verified(rollout_of(OWN.account, number, {b"a": 1.0, b"b": 0.0}, family=1))
    assert [success.of(family) for family in range(2)] == [0.5, 0.5]
    assert success.chances() == [MIN_CHANCE, 1.0]


def test_older_groups_lose_weight() -> None:
    success = OwnSuccess(OWN.account, 1)
    for number in range(4 * GROUPS):
        success.verified(rollout_of(OWN.account, number, {b"a": 1.0, b"b": 0.0}))
    assert success.chances() == [1.0]
    for number in range(3 * GROUPS):
        success.verified(rollout_of(OWN.account, number, {b"a": 1.0}))
    assert success.of(0) > 0.95
    assert success.chances() == [MIN_CHANCE]
