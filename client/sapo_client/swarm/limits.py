"""Every limit of the transport, with the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sapo_protocol.constants import MAX_ENVELOPE_BYTES

_SENT_SHARE: Final = 0.9
_SENT_BURST: Final = 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """A sustained rate and the burst above it that is allowed."""

    per_second: float
    burst: float

    def times(self, factor: float) -> Rate:
        """Return a multiple of it."""
        return Rate(self.per_second * factor, self.burst * factor)


@dataclass(frozen=True, slots=True)
class ConnectionRates:
    """Rate limits of messages per connection.

    Attributes:
        proves_flood: whether no honest relay can exceed the limits. One may if the quotas of all relevant
            accounts exceed the ceiling; then the excess has no penalty.
    """

    messages: Rate
    bytes: Rate
    proves_flood: bool

    @property
    def of_sender(self) -> ConnectionRates:
        """The rates of what is sent: a tenth less, since clocks differ, and half of the burst, since what
        waited on the way arrives at once."""
        messages, size = self.messages, self.bytes
        return ConnectionRates(
            Rate(_SENT_SHARE * messages.per_second, _SENT_BURST * messages.burst),
            Rate(_SENT_SHARE * size.per_second, _SENT_BURST * size.burst),
            self.proves_flood,
        )


@dataclass(frozen=True, slots=True)
class ScoreLimits:
    """Peer score thresholds and memory; the values are those of Lighthouse's peer manager."""

    disconnect_below: float = -20.0
    ban_below: float = -50.0
    floor: float = -100.0  # a fatal fault; three half-lives away from being dialled again
    lowest_rating: float = -15.0  # above the line: a rating alone disconnects no peer ...
    highest_rating: float = (
        5.0  # ... it decides which peers the mesh keeps, and how many faults are tolerated
    )
    half_life_seconds: float = 600.0
    ban_seconds: float = 600.0  # temporary: peer ids are free, so a longer ban only hurts honest mistakes
    max_peers: int = 4096  # about 1 MiB of memory, far above any connection limit


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds on what one peer, and all peers together, can make this node spend."""

    max_message_bytes: int = MAX_ENVELOPE_BYTES
    rpc_overhead_bytes: int = 16 * 1024  # topic names, subscriptions, control lists around one message
    messages: Rate = Rate(per_second=200, burst=800)  # per connection, at least
    bytes: Rate = Rate(per_second=4 * 2**20, burst=16 * 2**20)  # for these 200 messages: 20 KiB each
    copies: float = 2.0  # of a message from one relay at most, on average: in the mesh, and on request
    max_growth: float = 5.0  # of both rates: at 1,000 a second half are new, and 60,000 ids are remembered
    min_rpc_bytes: int = 2048  # as which the shortest RPC counts: one byte of zero takes 14 us to read
    flood_pause_seconds: float = 0.2  # reading stops that long: at most five penalties a second
    reads: Rate = Rate(per_second=4000, burst=16_000)  # of one connection: two for a message, at the ceiling
    streams: Rate = Rate(per_second=10, burst=64)  # that one connection opens: one for each request
    requests: Rate = Rate(per_second=5, burst=20)  # per peer; a new node asks a few times at its start
    max_request_bytes: int = 64 * 1024
    max_open_requests: int = 8  # streams of one peer; an honest one asks on a few protocols at a time
    request_read_seconds: float = 5.0  # until a request is there; over a slow and busy link it takes two
    lapses: Rate = Rate(per_second=0.1, burst=8)  # of a peer without blame: a slow link has as many
    max_answers_at_once: int = 2  # for one peer; each is a megabyte at most while it is being sent
    max_requests_at_once: int = 32  # worked on at the same time, all peers together
    request_timeout_seconds: float = 10.0
    ping_after_seconds: float = 10.0  # without a word over a connection ...
    pong_seconds: float = 15.0  # ... which ends if nothing comes for so long then
    max_connections: int = 80  # gossip needs a dozen; the rest is for new peers
    inbound_share: float = 0.75  # of connections; the rest stays free for peers that this node dials
    stranger_share: float = 0.5  # of connections, inbound; the quarter between is kept for vouched peers ...
    untrusted_share: float = 0.625  # ... half of it for those that earned trust: a bond can be bought
    max_streams_per_connection: int = 64  # an honest peer holds two gossip streams and a few requests
    max_buffered_bytes_per_connection: int = 4 * 2**20
    outbound_queue: int = 512  # RPCs waiting for one slow peer ...
    outbound_bytes: int = 2 * 2**20  # ... and their bytes: 400 messages of 5 KiB, 15 of the largest
    forwarded_share: float = 7 / 8  # of the queue, for others' messages; the rest is for own ones
    control_bytes: int = 512 * 1024  # more, for own messages and RPCs without any, so that the mesh is kept
    seen_messages: int = 65_536  # ids of 32 bytes: about 10 MiB with their bookkeeping
    seen_seconds: float = 120.0  # gossipsub's usual memory; older copies are caught by the epoch window
    ignored_seconds: float = 5.0  # an ignored message may become acceptable: a forwarder is heard again then
    score: ScoreLimits = field(default_factory=ScoreLimits)

    @property
    def turn_bytes(self) -> float:
        """Bytes of others' messages that one author may send to a peer in its turn: those of one message,
        where a peer's limits of messages and of bytes are reached together."""
        return self.bytes.per_second / self.messages.per_second

    @property
    def min_quota(self) -> float:
        """Messages per second of all accounts, up to which a connection has the lowest rate."""
        return self.messages.per_second / self.copies

    @property
    def max_quota(self) -> float:
        """Messages per second of all accounts, from which on a connection has the highest rate."""
        return self.messages.per_second * self.max_growth / self.copies

    def rates_for(self, quota_per_second: float) -> ConnectionRates:
        """Return the rate limits of one connection.

        An honest relay forwards the accepted messages of all accounts on the subscribed topics.

        Args:
            quota_per_second: messages that these accounts may send, all together.
        """
        growth = min(max(1.0, quota_per_second / self.min_quota), self.max_growth)
        return ConnectionRates(
            self.messages.times(growth),
            self.bytes.times(growth),
            proves_flood=quota_per_second <= self.max_quota,
        )


@dataclass(frozen=True, slots=True)
class DialLimits:
    """Limits and intervals of peer discovery."""

    target_peers: int = 8  # that this node dials: enough for a mesh of degree six, and two more
    usual_beside_sought: int = 4  # of them where members of islands are sought: others rarely hear the same
    vouched_peers: int = 4  # at least, of the usual ones: one honest neighbour keeps a node in the swarm
    sought_on_island: int = 8  # that this node dials: members of each of its islands ...
    sought_peers: int = 16  # ... but not more in all; with the four above as many as no inbound peer takes
    further_peers: int = 4  # beyond those while usual ones are missing, of islands that bring too little ...
    further_seconds: float = 2.0  # ... one at a time
    giving_way: int = 4  # idle members at a time, half of an island's: one newcomer is probably honest
    max_further_seconds: float = 256.0  # until the next ones: doubled up to that while it is in vain
    gave_way_seconds: float = 600.0  # for which who gave way is not dialled
    turn_seconds: float = 1200.0  # a member of an island that this node publishes on is replaced by another
    lost_peers: int = 4  # beyond the usual number: peers that this node chose, lost and found again ...
    max_lost: int = 16  # ... of so many that it remembers: a half of a swarm has none of them in 1 of 65,536
    lost_after_seconds: float = 60.0  # of connection; who goes sooner is not missed
    lost_for_seconds: float = 7 * 86_400.0  # then it has gone for good
    first_backoff_seconds: float = 0.5
    max_backoff_seconds: float = 60.0
    tick_seconds: float = 0.5  # the dialler only looks at a few deadlines each time
    dial_timeout_seconds: float = 10.0
    opening_seconds: float = 2.0  # of a dial that counts as a peer meanwhile; five round trips take a second
    first_exchange_seconds: float = 1.0  # a new swarm exchanges its members quickly ...
    max_exchange_seconds: float = 30.0  # ... an old one rarely
    max_known_peers: int = 1024
    max_addresses_per_peer: int = 4
    settled_seconds: float = 10.0  # a connection that ends sooner counts as a refusal: its back-off grows
    max_failures: int = 8  # a learned peer is forgotten after that; a bootstrap or lost peer is not
