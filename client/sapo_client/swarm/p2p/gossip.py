"""Publish and subscribe, with validators of three verdicts.

Messages are anonymous (gossipsub's StrictNoSign): author and signature are inside, checked by the
validator. Stock's signed messages cost a second signature per message, and its checks of author, key and
sequence number are where most malformed frames end it; with a forged author an attacker also makes a
victim drop a valid message as "its own".

Differences from the stock service: messages are validated inline in the reader of their stream (stock
starts a task for each, without bound), each once and with three outcomes; reading is metered and pauses for
a peer that floods; an accepted message is forwarded and not delivered a second time (stock delivers it
through a queue of 32, and drops the rest); outbound queues hold 512 messages instead of 32, within a number
of bytes (`outbound_queue.py`), what they drop is counted, and they are emptied at a pace at which no honest
peer takes a relay for a flooder; only the sending task of a peer writes on its
stream (stock writes replays and answers directly, and large ones interleave); a peer is registered once
however many connections it opens at the same time, and a peer that comes back before its old connection is
found dead gets a new stream and keeps its subscriptions (stock keeps the dead stream, and forgets the
subscriptions when it finds out); of the streams that a peer opens the newest two are read, and no RPC stays
in memory while the next one is waited for (stock reads any number, and keeps the last RPC of each); few
subscriptions start tasks; and a peer to which no stream could be opened is tried again while it is
connected (stock gives it up unless the connection ended).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, cast
from weakref import WeakSet

import trio
from libp2p.abc import IHost, IMuxedConn, INetStream
from libp2p.host.exceptions import HostException
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.net_stream import NetStream
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.intake import Intake, message_id
from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.p2p.frames import FrameReader
from sapo_client.swarm.p2p.mesh import Mesh
from sapo_client.swarm.p2p.muxer import BoundedYamux
from sapo_client.swarm.p2p.outbound_queue import PacedQueue
from sapo_client.swarm.p2p.rpc_fields import has_few_fields
from sapo_client.swarm.p2p.stream_guard import CONNECTION_ERRORS
from sapo_client.swarm.peer_score import Severity
from sapo_client.swarm.rate_limit import KeyedBuckets, Meter, SendingPace

_MAX_TOPICS_PER_PEER: Final = 256  # a node joins four to sixteen; an auditor three for each island
_MAX_TOPIC_CHARACTERS: Final = 128  # ours have about 90
_MIN_SUBSCRIPTION_BYTES: Final = 96  # as which one counts: ours have so many, the shortest two
_WELCOMES: Final = Rate(per_second=1, burst=64)  # subscriptions of a peer that are acted upon at once
_MAX_STREAMS: Final = 2  # of a peer that are read: after a reconnection the old one may not be known as dead


class GossipService(Pubsub):
    """The gossip service of one node."""

    router: Mesh

    def __init__(
        self,
        host: IHost,
        router: Mesh,
        intake: Intake,
        discipline: Discipline,
        counters: TransportCounters,
        limits: TransportLimits,
    ) -> None:
        super().__init__(
            host=host,
            router=router,
            strict_signing=False,
            msg_id_constructor=lambda message: message_id(message.topicIDs[0], message.data),
            max_subscriptions_per_peer=_MAX_TOPICS_PER_PEER,
            max_inbound_rpc_size=limits.max_message_bytes + limits.rpc_overhead_bytes,
        )
        self._intake = intake
        self._discipline = discipline
        self._counters = counters
        self._limits = limits
        self._meter = Meter(limits)
        self._pace = SendingPace(limits)
        self._welcomes = KeyedBuckets(_WELCOMES, 4 * limits.max_connections)
        self._registering: dict[ID, trio.CancelScope] = {}
        self._newest_stream: dict[ID, INetStream] = {}
        self._begun: WeakSet[INetStream] = WeakSet()
        self._read: dict[ID, list[INetStream]] = {}

    def send(self, topic: str, data: bytes) -> int:
        """Queue our own message; return for how many peers."""
        return self.router.forward(rpc_pb2.Message(data=data, topicIDs=[topic]), came_from=None)

    def relay(self, topic: str, data: bytes, came_from: str) -> None:
        """Forward a message that a peer sent some time ago."""
        message = rpc_pb2.Message(data=data, topicIDs=[topic])
        self.router.forward(message, came_from=ID.from_base58(came_from))

    def expect(self, quota_per_second: float, *, knows_all: bool = True) -> None:
        """Set each peer's rate limits from the quotas of all accounts on the subscribed topics."""
        self._meter.expect(quota_per_second, trio.current_time(), knows_all=knows_all)
        self._pace.expect(quota_per_second, trio.current_time())

    # Reading

    async def stream_handler(self, stream: INetStream) -> None:
        """Read one peer's stream to its end; errors go to the guard around every stream.

        The first frame of a stream states all subscriptions of its peer again; they end with it.
        """
        peer = stream.muxed_conn.peer_id
        streams = self._read.setdefault(peer, [])
        streams.append(stream)
        try:
            if len(streams) > _MAX_STREAMS:
                with suppress(*CONNECTION_ERRORS):
                    await streams.pop(0).reset()
            await self.continuously_read_stream(stream)
        finally:
            self._stop_reading(stream, peer)

    def _stop_reading(self, stream: INetStream, peer: ID) -> None:
        streams = self._read.get(peer, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._read.pop(peer, None)
        if self._newest_stream.get(peer) is stream:
            del self._newest_stream[peer]
            self._forget_all_subscriptions(peer)
        if not streams and peer not in self.peers:  # it refused our stream, or that ended before this one
            self.router.remove_peer(peer)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Read RPCs until the stream ends or its peer is disconnected."""
        peer = stream.muxed_conn.peer_id
        reader = FrameReader(stream, self.max_inbound_rpc_size)
        while self._discipline.allows(str(peer), trio.current_time()):
            if not await self._read_next(reader, stream, peer):
                return

    async def _read_next(self, reader: FrameReader, stream: INetStream, peer: ID) -> bool:
        """Read one RPC, which is forgotten when this returns; return False at the end of the stream."""
        frame = await reader.next()
        if frame is None:
            return False
        self._register_stream(stream, peer)
        rpc = self._parse(frame, str(peer))
        del frame
        if rpc is None:
            await self._pause(str(peer))
        else:
            await self._handle(rpc, peer, str(peer))
        return True

    def _parse(self, frame: bytes, peer_id: str) -> rpc_pb2.RPC | None:
        """Return a peer's RPC, an empty one if it is malformed; None if it is beyond the peer's limits."""
        rpc = rpc_pb2.RPC()
        if has_few_fields(frame):
            rpc.ParseFromString(frame)
        else:
            self._blame_malformed(peer_id)
        size_bytes = max(
            len(frame), self._limits.min_rpc_bytes, _MIN_SUBSCRIPTION_BYTES * len(rpc.subscriptions)
        )
        is_within = self._meter.take(peer_id, len(rpc.publish), size_bytes, trio.current_time())
        return rpc if is_within else None

    def _register_stream(self, stream: INetStream, peer: ID) -> None:
        if stream not in self._begun:
            self._begun.add(stream)
            self._newest_stream[peer] = stream
            self._forget_all_subscriptions(peer)

    async def _pause(self, peer_id: str) -> None:
        """Drop one RPC of a flood, apply a small penalty, and stop reading for a moment."""
        self._discipline.note_flood(peer_id, trio.current_time(), proven=self._meter.proves_flood)
        await trio.sleep(self._limits.flood_pause_seconds)

    async def _handle(self, rpc: rpc_pb2.RPC, peer: ID, peer_id: str) -> None:
        for message in rpc.publish:
            self._handle_message(message, peer, peer_id)
        for subscription in rpc.subscriptions[:_MAX_TOPICS_PER_PEER]:
            if _is_topic(subscription.topicid):
                self.handle_subscription(peer, subscription)
            else:
                self._blame_malformed(peer_id)
        if rpc.HasField("control"):
            await self.router.handle_rpc(rpc, peer)

    def handle_subscription(self, origin_id: ID, sub_message: rpc_pb2.RPC.SubOpts) -> None:
        """Record a subscription or its end; the first ones to joined topics are acted upon at once.

        Stock starts three tasks for each subscription to any topic, half a millisecond in all. The others get
        into the mesh at a heartbeat, and what they lack by IHAVE.
        """
        topic = sub_message.topicid
        if (
            not sub_message.subscribe
            or origin_id in self.peer_topics.get(topic, ())
            or (topic in self.topic_ids and self._welcomes.take(str(origin_id), trio.current_time()))
        ):
            super().handle_subscription(origin_id, sub_message)
        elif self._peer_subscription_count.get(origin_id, 0) < self.max_subscriptions_per_peer:
            self._peer_subscription_count[origin_id] = self._peer_subscription_count.get(origin_id, 0) + 1
            self.peer_topics.setdefault(topic, set()).add(origin_id)

    def _handle_message(self, message: rpc_pb2.Message, peer: ID, peer_id: str) -> None:
        signed = message.from_id or message.seqno or message.signature or message.key
        if signed or len(message.topicIDs) != 1 or not _is_topic(message.topicIDs[0]):
            self._blame_malformed(peer_id)
        elif self._intake.process(message.topicIDs[0], message.data, peer_id, trio.current_time()):
            self.router.forward(message, came_from=peer)

    def _blame_malformed(self, peer_id: str) -> None:
        self._counters.malformed_frames += 1
        self._discipline.blame(peer_id, Severity.MID, trio.current_time())

    def _forget_all_subscriptions(self, peer_id: ID) -> None:
        super()._forget_all_subscriptions(peer_id)
        for members in self.router.mesh.values():
            members.discard(peer_id)

    def _forget_subscription(self, peer_id: ID, topic: str) -> None:
        super()._forget_subscription(peer_id, topic)
        self.router.mesh.get(topic, set()).discard(peer_id)

    # Writing

    async def handle_sending_messages(self, peer_id: ID, stream: INetStream, queue: RpcQueue) -> None:
        """Write what is queued for a peer, no faster than an honest one lets this node bring."""
        paced = PacedQueue(queue, str(peer_id), self._pace, self._limits.min_rpc_bytes)
        await super().handle_sending_messages(peer_id, stream, paced)

    async def _handle_new_peer(self, peer_id: ID) -> None:
        """Open the outbound stream; a newer connection ends the attempt on an older one."""
        if peer_id in self._registering:
            self._registering[peer_id].cancel()
        if self._is_stale(peer_id):
            self._drop_registration(peer_id)
        with trio.CancelScope() as scope:
            self._registering[peer_id] = scope
            try:
                await super()._handle_new_peer(peer_id)
            except HostException as error:
                raise SwarmException("the peer opened no stream") from error  # the only error tried again
            finally:
                if self._registering.get(peer_id) is scope:
                    del self._registering[peer_id]
        queue = self.peer_queues.get(peer_id)
        if queue is not None:
            self.router.bound(queue, self._limits)

    async def handle_dead_peer_queue(self) -> None:
        """Drop streams of connections that ended, whether or not the peer has another."""
        async with self.dead_peer_receive_channel:
            self.event_handle_dead_peer_queue_started.set()
            async for peer in self.dead_peer_receive_channel:
                if self._is_stale(peer):
                    self._handle_dead_peer(peer)

    def _handle_dead_peer(self, peer_id: ID) -> None:
        """Drop a stream that failed while we wrote; open another one where the peer is still connected."""
        self._clear_pending_announce_retries_for_peer(peer_id)
        self._drop_registration(peer_id)
        if self._peer_is_connected(peer_id):
            self._schedule_peer_stream_retry(peer_id)

    def _drop_registration(self, peer: ID) -> None:
        if self.peers.pop(peer, None) is not None:
            self.peer_queues.pop(peer).close()
            self.router.remove_peer(peer)

    def _is_stale(self, peer: ID) -> bool:
        stream = self.peers.get(peer)
        if stream is None:
            return False
        return bool(cast(NetStream, stream).is_closed or _is_ending(stream.muxed_conn))

    def _peer_is_connected(self, peer_id: ID) -> bool:
        connections = self.host.get_network().get_connections(peer_id)
        return not all(_is_ending(connection.muxed_conn) for connection in connections)

    def get_hello_packet(self) -> rpc_pb2.RPC:
        """Return our subscriptions, without the peer record that stock adds."""
        return rpc_pb2.RPC(subscriptions=[self._subscription(topic) for topic in self.topic_ids])

    def _build_announce_rpc(self, topic_id: str, subscribe: bool) -> tuple[rpc_pb2.RPC, rpc_pb2.RPC.SubOpts]:
        announced = rpc_pb2.RPC.SubOpts(subscribe=subscribe, topicid=topic_id)
        return rpc_pb2.RPC(subscriptions=[announced]), announced

    @staticmethod
    def _subscription(topic: str) -> rpc_pb2.RPC.SubOpts:
        return rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)


def _is_ending(connection: IMuxedConn) -> bool:
    return connection.is_closed or cast(BoundedYamux, connection).event_shutting_down.is_set()


def _is_topic(name: object) -> bool:
    """Whether a topic name is text of an allowed length; protobuf returns bytes for invalid UTF-8."""
    return isinstance(name, str) and len(name) <= _MAX_TOPIC_CHARACTERS
