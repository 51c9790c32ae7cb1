"""The table of consequences: reason -> gossip verdict and evidence against the author.

REJECT is reserved for facts that are the same on every honest node, at any time, under any load
and library version; it lowers the forwarder's peer score. Everything else is IGNORE.
``evidence`` is the negative evidence recorded against the *author's account*, once the signature is checked
(stages 8 and later); 10 is hard, 1 and below is soft.
The rules behind each reason are in ``sapo_protocol.rules``.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sapo_protocol.errors import Reason, Verdict

SOFT: Final = 0.5
"""Evidence of a fault that can happen to an honest node; twenty of them weigh as much as a hard one."""
HARD: Final = 10.0
"""Evidence of a fault that no honest node commits."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """The gossip verdict on a refused message, and the evidence against its author."""

    verdict: Verdict
    evidence: float = 0.0


_ACCEPT, _IGNORE, _REJECT = Verdict.ACCEPT, Verdict.IGNORE, Verdict.REJECT

CONSEQUENCES: Final = MappingProxyType(
    {
        Reason.FLOOD: Consequence(_IGNORE),
        Reason.OVERSIZE: Consequence(_REJECT),
        Reason.NOT_CANONICAL: Consequence(_REJECT),
        Reason.SCHEMA: Consequence(_REJECT),
        Reason.OUT_OF_BOUNDS: Consequence(_REJECT),
        Reason.WRONG_VERSION: Consequence(_REJECT),
        Reason.WRONG_KIND: Consequence(_REJECT),
        Reason.WRONG_SWARM: Consequence(_REJECT),
        Reason.RESERVED: Consequence(_IGNORE),  # a later version may be able to read it
        Reason.EPOCH_PAST: Consequence(_IGNORE),
        Reason.EPOCH_FUTURE: Consequence(_IGNORE),
        Reason.SEEN: Consequence(_IGNORE),
        Reason.CONTRIBUTION_QUOTA: Consequence(_IGNORE),  # nodes may differ in which two they saw first
        Reason.CERTIFICATE_UNKNOWN: Consequence(_IGNORE),
        Reason.CERTIFICATE_EXPIRED: Consequence(_IGNORE),
        Reason.CERTIFICATE_MALFORMED: Consequence(_REJECT),
        Reason.NOT_AN_AUDITOR: Consequence(_IGNORE),  # nodes may have read the chain at different times
        Reason.NO_BOND: Consequence(_IGNORE),  # a fact of the chain, known to some nodes before others
        Reason.SLOT_OVER_QUOTA: Consequence(_REJECT),
        Reason.NOT_ITS_TURN: Consequence(_IGNORE),  # depends on the known auditors, like NOT_AN_AUDITOR
        Reason.UNKNOWN_FAMILY: Consequence(_REJECT),
        Reason.TERMS_UNKNOWN: Consequence(_IGNORE),  # until this node has read the chain
        Reason.WRONG_ISLAND: Consequence(_IGNORE),  # nodes may know different beacons and final epochs
        Reason.BAD_SIGNATURE: Consequence(_REJECT),
        # checked after the signature, or anyone could incriminate an account with a forged second content;
        # IGNORE, since nodes may differ in which of the two they saw first
        Reason.EQUIVOCATION: Consequence(_IGNORE, evidence=HARD),
        Reason.BANNED: Consequence(_ACCEPT),
        Reason.ACCOUNT_QUOTA: Consequence(_ACCEPT),
        Reason.NEWCOMER_CAP: Consequence(_ACCEPT),
        Reason.TEXT_POLICY: Consequence(_ACCEPT, evidence=SOFT),
        Reason.BEACON_UNKNOWN: Consequence(_ACCEPT),
        Reason.CHECKER_TIMEOUT: Consequence(_ACCEPT, evidence=SOFT),
        Reason.CHECKER_CRASH: Consequence(_ACCEPT, evidence=SOFT),
        Reason.CODE_IN_ANSWER: Consequence(_ACCEPT, evidence=SOFT),
        Reason.NO_SIGNAL: Consequence(_ACCEPT),
        Reason.OFF_LEVEL: Consequence(_ACCEPT),  # nodes may see the chain's newest blocks at different times
        Reason.NODE_BUSY: Consequence(_ACCEPT),  # depends on this node only
        Reason.NEAR_DUPLICATE: Consequence(_ACCEPT, evidence=SOFT),
        Reason.UNLIKELY: Consequence(_ACCEPT),
        Reason.PLANTED_PHRASE: Consequence(_ACCEPT),  # a model may have its own style
    }
)
"""By reason. Stages 8 and later run after forwarding, so their message was an ACCEPT."""


def verdict(reason: Reason) -> Verdict:
    """Return the gossip verdict of a reason."""
    return CONSEQUENCES[reason].verdict
