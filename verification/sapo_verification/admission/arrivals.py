"""A received message and the engine's decision on it."""

from dataclasses import dataclass

from sapo_protocol.audits.commitment import Commitment
from sapo_protocol.certificate import Certificate
from sapo_protocol.equivocation import EquivocationProof
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import NodeId
from sapo_protocol.rules import Rule
from sapo_verification.admission.contributions import AdmittedContribution
from sapo_verification.islands import TopicIslands
from sapo_verification.types import AdmittedRollout

Admitted = AdmittedRollout | AdmittedContribution | Certificate | Commitment | EquivocationProof


@dataclass(frozen=True, slots=True)
class Received:
    """The decision on one message.

    Attributes:
        verdict: action of the transport on the message.
        rule: the rule that it breaks, if any; after a rule of stage 8 (the pool's) the verdict is still
            ACCEPT.
        admitted: the object that passed stages 1 to 7, if any.
        proof: a message to be published, which proves the equivocation that this message completed, if any.
        islands: those on whose topics the proof is published.
        unknown: the author of the message, if this node lacks its certificate.
        begins_seconds: Unix time from which on the message's epoch is accepted, if it has not begun.
    """

    verdict: Verdict
    rule: Rule | None = None
    admitted: Admitted | None = None
    proof: bytes | None = None
    islands: tuple[int, ...] = (0,)
    unknown: NodeId | None = None
    begins_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message with its topic, source and times; see ``Engine.receive``."""

    message: bytes
    now_seconds: float
    arrived_seconds: float
    source: str
    live: bool
    topic_islands: TopicIslands
