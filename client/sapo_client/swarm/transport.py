"""Interface of the network for a node: publish, subscribe with a validator, request, serve, peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.relays import NOTHING_SHORT, Shortage
from sapo_client.swarm.router.answers import RouterView
from sapo_protocol.errors import Verdict

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # the stubs that py-libp2p installs know no trio.TaskStatus

Validator = Callable[[bytes, str], Verdict]
"""Synchronous and cheap: message bytes and the peer id of the forwarder in, verdict out.

A `ProtocolError` raised by a validator is a REJECT. Any other exception is a bug of this program: the message
is dropped without a penalty and the error is passed to the transport's `on_bug`.
"""

AuthorOf = Callable[[bytes], str | None]
"""Returns whose an accepted message is, as a name; None if that is not known."""

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Returns the response to one request, from the peer id and the request's payload."""

BugReport = Callable[[Exception], None]
"""Called with errors of the node's own callbacks; the supervisor reports them."""


class TransportError(Exception):
    """A peer could not be reached, did not answer in time, or violated the protocol."""


class Direction(StrEnum):
    """Which side opened the connection."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """One connected peer as this node sees it.

    `connected_since_seconds` is the age of the connection, `score` is zero or less.
    `addresses` are those that it announces, `remote_host` is the IP address from which it is connected.
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


@dataclass(frozen=True, slots=True)
class FoundPeer:
    """A peer that the application wants to be connected with.

    Attributes:
        addresses: full multiaddrs, signed by the peer, which does not prove that they are reachable.
        source_host: IP address of the peer that sent the addresses.
        islands: those for which it is wanted.
        source: group of networks of the peer to which the address record is attributed.
    """

    peer_id: str
    addresses: tuple[str, ...]
    source_host: str
    islands: frozenset[int]
    source: str


class Transport(Protocol):
    """Connection of one node to the swarm."""

    @property
    def peer_id(self) -> str:
        """Return the own peer id, derived from the node key."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the full multiaddrs, `/p2p/` included, at which others can dial this node."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, dial and forward until cancelled; started once the node listens."""

    async def publish(self, topic: str, data: bytes) -> int:
        """Send a message; return the number of receiving peers, 0 if not connected yet: then try again."""

    def relay(self, topic: str, data: bytes, came_from: str) -> None:
        """Forward a message of another node that was ignored when it came, and is accepted now.

        Args:
            came_from: the peer that sent it.
        """

    def subscribe(self, topic: str, validator: Validator, author_of: AuthorOf | None = None) -> None:
        """Pass each new message that others send on `topic` to `validator`; forward those it accepts.

        Args:
            author_of: names the authors that have turns where more is to be forwarded to a peer than may be
                sent; without it, and without a name, the peers that brought the messages have turns.
        """

    def unsubscribe(self, topic: str) -> None:
        """Leave a topic; does nothing if it is not subscribed."""

    def peers(self) -> tuple[PeerInfo, ...]:
        """Return the connected peers, ordered by peer id."""

    def counters(self) -> Mapping[str, int]:
        """Return the counts of received and dropped messages, by reason, since the start."""

    def blame(self, peer_id: str) -> None:
        """Penalise a peer for a REJECT message that it sent on request, as for a gossiped one."""

    def rate(self, ratings: Mapping[str, float]) -> None:
        """Replace the application's ratings of peers, by peer id; bounded by `ScoreLimits`."""

    def vouch(self, earned: Iterable[str], bonded: Iterable[str] = ()) -> None:
        """Keep connection places for these peers and for no others: their accounts are trusted, or bonded."""

    def expect(self, quota_per_second: float, *, knows_all: bool = True) -> None:
        """Set each connection's rate limits from the quotas of all accounts on the subscribed topics.

        Args:
            quota_per_second: messages that these accounts may send, all together.
            knows_all: false while some of them may be unknown; then who exceeds the limits has no penalty.
        """

    def seek(
        self,
        found: Iterable[FoundPeer],
        short: Mapping[int, Shortage] = NOTHING_SHORT,
        own: Collection[int] = (),
    ) -> None:
        """Dial some of these peers, of each island, and no others besides the usual ones.

        Args:
            short: the islands that are short of relays; there further members are dialled, one after another,
                and replace those that relay nothing.
            own: the islands that this node publishes on; there one member is replaced from time to time.
        """

    def reachability(self) -> Reachability:
        """Return whether other nodes can connect to this one, by the answers of peers."""

    def reached_at(self) -> tuple[str, ...]:
        """Return the full multiaddrs at which several peers reached this node when it asked them."""

    def router(self) -> RouterView | None:
        """Return the state of the router's port mapping; None if it is not used."""

    def neighbours(self) -> int | None:
        """Return how many nodes are found in the local network; None if none are looked for."""

    def take_floods(self) -> Mapping[str, int]:
        """Return how often each peer exceeded its rate since the last call, by peer id."""

    async def request(self, peer_id: str, protocol: str, payload: bytes, *, max_response_bytes: int) -> bytes:
        """Return the response of a connected peer, or raise `TransportError`."""

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer requests on `protocol` with `handler`."""

    async def connect(self, multiaddr: str) -> None:
        """Connect to the peer at a full multiaddr, or raise `TransportError`."""
