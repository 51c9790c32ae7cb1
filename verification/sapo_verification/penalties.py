"""The one table of rules: reason -> stage, verdict, who pays, how much.

REJECT is reserved for facts that are the same on every honest node, at any time, under any load
and library version; it costs the forwarder peer score. Everything else is IGNORE.
``evidence`` is what the *author's account* pays in reputation, once it is known to be the author
(stages 8 and later); negative evidence of 10 is hard, 1 and below is soft.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sapo_protocol.errors import Reason, Verdict

SOFT: Final = 0.5
"""A fault that can happen to an honest node; some twenty of them cost what one proven lie costs."""
HARD: Final = 10.0
"""A fault that no honest node commits."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a reason means."""

    stage: int
    verdict: Verdict
    evidence: float = 0.0


_ACCEPT, _IGNORE, _REJECT = Verdict.ACCEPT, Verdict.IGNORE, Verdict.REJECT

RULES: Final = MappingProxyType(
    {
        Reason.FLOOD: Rule(0, _IGNORE),
        Reason.OVERSIZE: Rule(0, _REJECT),
        Reason.NOT_CANONICAL: Rule(1, _REJECT),
        Reason.SCHEMA: Rule(1, _REJECT),
        Reason.OUT_OF_BOUNDS: Rule(1, _REJECT),
        Reason.WRONG_VERSION: Rule(2, _REJECT),
        Reason.WRONG_KIND: Rule(2, _REJECT),
        Reason.WRONG_SWARM: Rule(2, _REJECT),
        Reason.EPOCH_PAST: Rule(3, _IGNORE),
        Reason.EPOCH_FUTURE: Rule(3, _IGNORE),
        Reason.SEEN: Rule(4, _IGNORE),
        Reason.CERTIFICATE_UNKNOWN: Rule(5, _IGNORE),
        Reason.CERTIFICATE_EXPIRED: Rule(5, _IGNORE),
        Reason.CERTIFICATE_MALFORMED: Rule(5, _REJECT),
        Reason.NOT_AN_AUDITOR: Rule(5, _IGNORE),  # IGNORE: nodes may have asked the chain at different times
        Reason.SLOT_OVER_QUOTA: Rule(6, _REJECT),
        Reason.UNKNOWN_FAMILY: Rule(6, _REJECT),
        Reason.BAD_SIGNATURE: Rule(7, _REJECT),
        # checked behind the signature, or anyone could frame an account with a forged second content;
        # IGNORE, for nodes differ on which of the two they saw first
        Reason.EQUIVOCATION: Rule(6, _IGNORE, evidence=HARD),
        Reason.BANNED: Rule(8, _ACCEPT),
        Reason.ACCOUNT_QUOTA: Rule(8, _ACCEPT),
        Reason.NEWCOMER_CAP: Rule(8, _ACCEPT),
        Reason.TEXT_POLICY: Rule(9, _ACCEPT, evidence=SOFT),
        Reason.BEACON_UNKNOWN: Rule(10, _ACCEPT),
        Reason.CHECKER_TIMEOUT: Rule(10, _ACCEPT, evidence=SOFT),
        Reason.CHECKER_CRASH: Rule(10, _ACCEPT, evidence=SOFT),
        Reason.CODE_IN_ANSWER: Rule(10, _ACCEPT, evidence=SOFT),
        Reason.NO_SIGNAL: Rule(10, _ACCEPT),
        Reason.NEAR_DUPLICATE: Rule(11, _ACCEPT, evidence=SOFT),
        Reason.UNLIKELY: Rule(12, _ACCEPT),
        Reason.PLANTED_PHRASE: Rule(13, _ACCEPT),  # a manner of one's own is no lie
    }
)
"""Stages 8 and later run after forwarding, so the message itself was an ACCEPT."""


def verdict(reason: Reason) -> Verdict:
    """The gossip verdict of a reason."""
    return RULES[reason].verdict
