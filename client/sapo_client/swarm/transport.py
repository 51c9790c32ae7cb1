"""What the node sees of the network: publish, subscribe with a validator, request, serve, peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_protocol.errors import Verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # the stubs that py-libp2p installs know no trio.TaskStatus

Validator = Callable[[bytes, str], Verdict]
"""Synchronous and cheap: message bytes and the peer id of the forwarder in, verdict out.

A `ProtocolError` raised by a validator is a REJECT. Anything else it raises is our bug: the message is
dropped without blame and the error goes to the transport's `on_bug`.
"""

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Answers one request: peer id and payload in, response payload out."""

BugReport = Callable[[Exception], None]
"""Where errors of our own callbacks go: the node's supervisor."""


class TransportError(Exception):
    """A peer that could not be reached, did not answer in time or answered against the rules."""


class Direction(StrEnum):
    """Who opened the connection."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """One connected peer as this node sees it.

    `connected_since_seconds` is how long the connection stands, `score` is zero or less.
    `addresses` are what it says of itself, `remote_host` is the IP address that we see it at.
    """

    peer_id: str
    addresses: tuple[str, ...]
    connected_since_seconds: float
    direction: Direction
    in_mesh: bool
    score: float
    received: int
    rejected: int
    remote_host: str | None = None


class Transport(Protocol):
    """A node's place in the swarm."""

    @property
    def peer_id(self) -> str:
        """Own peer id, derived from the node key."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Full multiaddrs, `/p2p/` included, under which others can dial this node."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, dial and forward until cancelled; started once the node listens."""

    async def publish(self, topic: str, data: bytes) -> int:
        """Number of peers that the message was handed to; 0 means: not connected yet, try again."""

    def subscribe(self, topic: str, validator: Validator) -> None:
        """Hand each new message that others send on `topic` to `validator`, and forward those it accepts."""

    def peers(self) -> tuple[PeerInfo, ...]:
        """Connected peers, ordered by peer id."""

    def counters(self) -> Mapping[str, int]:
        """What was received, dropped and why, since the start."""

    def rate(self, ratings: Mapping[str, float]) -> None:
        """Replace what the application thinks of peers, by peer id; bounded by `ScoreLimits`."""

    def take_floods(self) -> Mapping[str, int]:
        """Moments since the last call in which a peer sent more than it may, by peer id."""

    async def request(self, peer_id: str, protocol: str, payload: bytes, *, max_response_bytes: int) -> bytes:
        """Response of a connected peer, or `TransportError`."""

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer requests on `protocol` with `handler`."""

    async def connect(self, multiaddr: str) -> None:
        """Connect to the peer at a full multiaddr, or `TransportError`."""
