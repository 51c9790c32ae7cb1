"""Engine settings that an operator may choose."""

from dataclasses import dataclass, field
from typing import Final

from sapo_verification.sampling.audit_queue import MAX_WAITING
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.store import KEPT_BYTES


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of an engine that an operator may choose.

    Attributes:
        sampling: how a batch is mixed.
        pool: limits of the pool.
        audit_share: probability that a known account's rollout is queued for an audit; 1 for an auditor.
            Unless it is 0 (no audits), every rollout of a newcomer is queued.
        audits_waiting: most rollouts in the audit queue.
        kept_bytes: disk space for the rollouts of ``KEPT_EPOCHS`` epochs.
    """

    sampling: SamplingPolicy = field(default_factory=SamplingPolicy)
    pool: PoolLimits = field(default_factory=PoolLimits)
    audit_share: float = 1.0
    audits_waiting: int = MAX_WAITING
    kept_bytes: int = KEPT_BYTES


USUAL_TERMS: Final = Terms()
