"""A sampling strategy, two task samplers and an arm that `sapo` finds by their entry points."""

import random
from collections.abc import Sequence

from sapo_client.lab.arms import Arm
from sapo_verification.sampling.own_success import FamilyRecord
from sapo_verification.sampling.strategies import SamplingStrategy
from sapo_verification.types import VerifiedRollout

NUMBER = 7


def by_reputation(reputation: float, _likelihood: float, _usefulness: float) -> float:
    """Weigh an account by its reputation alone."""
    return reputation


def newest_only(age_in_epochs: int) -> float:
    """Take no group of an earlier epoch."""
    return 1.0 if age_in_epochs == 0 else 0.0


def any_group(_rollout: VerifiedRollout) -> float:
    """Weigh all groups alike."""
    return 1.0


NEWEST = SamplingStrategy(account=by_reputation, waiting=newest_only, verified=any_group, looks=1)

NEWEST_FIRST = Arm("newest-first", local=6, external=2, sampler="informative")


def weakest(families: Sequence[FamilyRecord], _rng: random.Random) -> int:
    """Return the family with the least success, the first of several."""
    return min(range(len(families)), key=lambda index: families[index].success)


def beyond(families: Sequence[FamilyRecord], _rng: random.Random) -> int:
    """Return a number that no family has."""
    return len(families)
