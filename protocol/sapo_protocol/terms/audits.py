"""The terms of audits by sample: how many accounts and groups of an epoch auditors check."""

from dataclasses import dataclass
from typing import Final

from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError

MAX_SAMPLES: Final = 8
"""Of one account: the largest groups, 66 KiB each, fit into one response."""

MAX_ONE_IN: Final = 65_536

MAX_COMMITTED_SLOTS: Final = 65_536
"""Slots of an account in an epoch: a bitmap with a bit for each is 8 KiB."""


_MAX_AUDIT_SECONDS = 150
"""Longest time of an audit beside finality, from an epoch's end to the first turn: five graces."""


def max_finality_seconds(epoch_seconds: int) -> int:
    """Return the largest ``finality_seconds`` with which an epoch is audited before the next one ends.

    Negative where there is none.
    """
    return (2 * epoch_seconds - min(2 * _MAX_AUDIT_SECONDS, epoch_seconds)) // 2


@dataclass(frozen=True, slots=True)
class AuditTerms:
    """How accounts are drawn, and how many of their groups.

    Attributes:
        samples: groups that are drawn of a drawn account, or all that it has committed to if these are fewer.
        one_in: one account in ``one_in`` is drawn, and its points count that many times; a power of two.
    """

    samples: int
    one_in: int

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise LocalProtocolError(f"an audit draws 1 to {MAX_SAMPLES} groups of an account")
        if not 1 <= self.one_in <= MAX_ONE_IN or self.one_in & (self.one_in - 1):
            raise LocalProtocolError(f"one account in a power of two up to {MAX_ONE_IN} is drawn")

    def to_value(self) -> Value:
        """Return the terms inside an encoded manifest."""
        return {0: self.samples, 1: self.one_in}
