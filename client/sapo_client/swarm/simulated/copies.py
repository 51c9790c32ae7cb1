"""Copies of messages between two nodes of a simulated mesh, as reported to observers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Way(Enum):
    """Why a copy of a message is sent."""

    OWN = "from its author"
    FORWARDED = "forwarded in the mesh"
    REQUESTED = "on request after an announcement"


@dataclass(slots=True)
class Traffic:
    """Traffic of one node, in bytes and messages."""

    sent_bytes: int = 0
    received_bytes: int = 0
    copies: int = 0
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class SentCopy:
    """One copy of a message between two nodes.

    Attributes:
        waited_seconds: for copies before it on the uplink.
        due_seconds: when it arrives.
        repeats: of its packets, those that got lost.
    """

    sender: str
    receiver: str
    identity: bytes
    way: Way
    waited_seconds: float
    due_seconds: float
    repeats: int = 0
