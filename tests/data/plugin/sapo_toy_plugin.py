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


def weakest(families: Sequence[FamilyRecord], rng: random.Random) -> int:
    """Return a family, more often the less success it has; none is excluded."""
    return rng.choices(range(len(families)), [1.05 - each.success for each in families])[0]


def beyond(families: Sequence[FamilyRecord], _rng: random.Random) -> int:
    """Return a number that no family has."""
    return len(families)


def forgetful(families: Sequence[FamilyRecord], _rng: random.Random) -> int:
    """Fail, as a plug-in that was written for other records."""
    return {"a": 0}[families[0].level]


def too_large(_families: Sequence[FamilyRecord], _rng: random.Random) -> int:
    """Fail for a lack of memory."""
    raise MemoryError


def unlike(reputation: float, _likelihood: float, usefulness: float) -> float:
    """Fail where nothing was useful."""
    return reputation / usefulness


DIVIDING = SamplingStrategy(account=unlike, waiting=newest_only, verified=any_group, looks=1)
