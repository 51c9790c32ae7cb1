"""Each fix compared with the unchanged library, which has the fault.

The first half of each test asserts that the fault exists in py-libp2p 0.8.1. When that assertion fails,
upstream has fixed the fault, and our own fix can be removed.
"""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

import libp2p
import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.io.abc import Reader
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import read_varint_prefixed_bytes_limited
from multiaddr.multiaddr import Multiaddr
from trio.testing import wait_all_tasks_blocked

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.frames import FrameReader, frame
from sapo_client.swarm.p2p.host import quiet
from sapo_client.swarm.p2p.outbound_queue import OutboundQueue
from sapo_protocol.errors import Verdict

TOPIC = "sapo/1/test/rollouts"
MESHSUB = TProtocol("/meshsub/1.1.0")
LOOPBACK = Multiaddr("/ip4/127.0.0.1/tcp/0")
PEER = ID.from_pubkey(create_new_key_pair(bytes([77]) * 32).public_key)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet()


def _stock_host(number: int = 200) -> Any:
    return libp2p.new_host(key_pair=create_new_key_pair(bytes([number]) * 32))


def _stock(host: Any = None, **options: Any) -> tuple[Pubsub, GossipSub]:
    router = GossipSub([MESHSUB], degree=6, degree_low=4, degree_high=12, **options)
    return Pubsub(host or _stock_host(), router, strict_signing=False), router


def _router(pubsub: Pubsub) -> GossipSub:
    assert isinstance(pubsub.router, GossipSub)
    return pubsub.router


def _message(data: bytes = b"x", **fields: Any) -> Any:
    return rpc_pb2.Message(data=data, topicIDs=[TOPIC], **fields)


def _register(pubsub: Any, peer: ID = PEER, stream: object = None) -> RpcQueue:
    """Register a peer whose outbound queue nobody empties, subscribed and in the mesh."""
    queue = pubsub.peer_queues[peer] = RpcQueue(1000)
    pubsub.peers[peer] = stream or object()
    pubsub.peer_topics.setdefault(TOPIC, set()).add(peer)
    pubsub.router.peer_protocol[peer] = TProtocol("/meshsub/1.2.0")
    pubsub.router.mesh.setdefault(TOPIC, set()).add(peer)
    return queue


def _queued(queue: RpcQueue) -> list[Any]:
    rpcs = []
    while (rpc := queue._queue.pop()) is not None:
        rpcs.append(rpc)
    return rpcs


class Recorder:
    """A validator that accepts every message and records it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def validate(self, data: bytes, _forwarder: str) -> Verdict:
        self.messages.append(data)
        return Verdict.ACCEPT


async def _end_of_stock(number: int, garbage: bytes, hostile: Any, tools: Any) -> str:
    """Return the error that ends a stock node when a peer writes `garbage`, or an empty text.

    It lives if it reads what follows, a subscription.
    """
    following = rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="after")])
    host = _stock_host(number)
    pubsub, router = _stock(host)
    try:
        async with host.run([LOOPBACK]), background_trio_service(pubsub), background_trio_service(router):
            await pubsub.subscribe(TOPIC)
            await hostile.connect(str(host.get_addrs()[0]))
            stream = await hostile.open(str(host.get_id()))
            await stream.write(garbage + frame(following.SerializeToString()))
            await tools.eventually(lambda: "after" in pubsub.peer_topics)
    except ExceptionGroup as group:
        return "".join(traceback.format_exception(group))
    return ""


async def test_one_malformed_frame_ends_a_stock_node(hostile: Any, tools: Any) -> None:
    assert "DecodeError" in await _end_of_stock(203, frame(b"\xff" * 64), hostile, tools)
    assert await _end_of_stock(204, frame(rpc_pb2.RPC().SerializeToString()), hostile, tools) == ""


async def test_one_malformed_frame_does_not_end_our_node(swarm: Any, tools: Any, hostile: Any) -> None:
    victim = await swarm.start(1)
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    await stream.write(frame(b"\xff" * 64))
    await tools.eventually(lambda: victim.transport.counters()["malformed_frames"] == 1)
    await tools.eventually(lambda: victim.transport.peers() == ())
    assert not victim.stopped.is_set()


async def _slots_after_a_connection(visitor: Any, host: Any, address: str, patience_seconds: float) -> int:
    """Inbound slots still held after a peer connected to that address and left, and a time has passed."""
    swarm = host.get_network()
    await visitor.connect(info_from_p2p_addr(Multiaddr(address)))
    while not swarm.connections:
        await trio.sleep(0.01)
    held = swarm._inbound_limiter.borrowed_tokens
    await visitor.disconnect(host.get_id())
    with trio.move_on_after(patience_seconds):
        while swarm.connections or swarm._inbound_limiter.borrowed_tokens == held:
            await trio.sleep(0.01)
    return int(swarm._inbound_limiter.borrowed_tokens)


async def test_inbound_slots_are_freed(swarm: Any, tools: Any) -> None:
    host, visitor = _stock_host(200), _stock_host(201)
    async with host.run([LOOPBACK]), visitor.run([]):
        assert await _slots_after_a_connection(visitor, host, str(host.get_addrs()[0]), 2) == 1
    visitor, ours = _stock_host(202), await swarm.start(1)
    async with visitor.run([]):
        address = ours.transport.addresses[0]
        patience = tools.PATIENCE_SECONDS
        assert await _slots_after_a_connection(visitor, ours.transport._host, address, patience) == 0


async def test_a_connection_that_comes_back_while_the_old_one_closes_is_kept(swarm: Any, tools: Any) -> None:
    class Slow:
        """A connection whose close lets another one open in the meantime."""

        def __init__(self, connections: dict[Any, list[Any]]) -> None:
            self.connections = connections

        async def close(self) -> None:
            await trio.lowlevel.checkpoint()
            self.connections[PEER] = ["newer"]

    kept = []
    for network in (_stock_host().get_network(), (await swarm.start(1)).transport._host.get_network()):
        network.connections[PEER] = [Slow(network.connections)]
        network.cleanup_connection_health = lambda *_: None
        await network.close_peer(PEER)
        kept.append(network.connections.pop(PEER, None))
    assert kept == [None, ["newer"]]


async def test_every_message_of_a_burst_is_validated(make_transport: Any) -> None:
    stock, router = _stock()
    async with background_trio_service(stock), background_trio_service(router):
        await stock.subscribe(TOPIC)
        for number in range(100):
            stock.notify_subscriptions(_message(bytes([number])))
        assert stock.subscribed_topics_send[TOPIC].statistics().current_buffer_used == 32

    ours, recorder = make_transport(), Recorder()
    ours.subscribe(TOPIC, recorder.validate)
    for number in range(100):
        ours._gossip._handle_message(_message(b"%d" % number), PEER, str(PEER))
    assert recorder.messages == [b"%d" % number for number in range(100)]


async def test_outbound_queue_is_longer_and_what_it_drops_is_counted(swarm: Any, tools: Any) -> None:
    limits = TransportLimits(outbound_queue=50)
    members = await swarm.start_members(2, limits=limits)
    await swarm.wait_until_connected(members)
    gossip = members[0].transport._gossip
    [queue] = gossip.peer_queues.values()
    assert (RpcQueue()._queue.max_size, queue._queue.max_size) == (32, 50)
    assert isinstance(queue._queue, OutboundQueue)
    waiting = len(queue._queue)  # of the router's own messages
    for number in range(60):  # without a checkpoint: nothing is sent meanwhile
        gossip.send(TOPIC, bytes([number]))
    assert members[0].transport.counters()["dropped_before_sending"] == 10 + waiting


async def test_a_quick_restart_does_not_reuse_message_ids(make_transport: Any) -> None:
    first, second = _stock()[0], _stock()[0]  # the same node, twice within a second
    first.counter = second.counter  # both start at whole seconds; this only spares waiting for the same one
    ids = [
        pubsub.get_message_id(_message(data, from_id=b"me", seqno=pubsub._next_seqno()))
        for pubsub, data in ((first, b"before"), (second, b"after"))
    ]
    assert isinstance(second.counter, int)
    assert second.counter < 10**11
    assert ids[0] == ids[1]
    ours = make_transport()._gossip
    assert ours.get_message_id(_message(b"before")) != ours.get_message_id(_message(b"after"))


async def test_control_messages_about_invented_topics_leave_no_trace(make_transport: Any) -> None:
    prunes = [rpc_pb2.ControlPrune(topicID=f"t{number}", backoff=99) for number in range(100)]
    rpc = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(prune=prunes))
    remembered = []
    for pubsub in (_stock()[0], make_transport()._gossip):
        await pubsub.router.handle_rpc(rpc, PEER)
        remembered.append(len(_router(pubsub).back_off))
    assert remembered == [100, 0]


async def test_forwarded_messages_are_not_kept_for_ever(make_transport: Any) -> None:
    stock, router = _stock(adaptive_gossip_enabled=False, spam_protection_enabled=False)
    ours = make_transport()._mesh
    for number in range(50):
        await router.publish(PEER, _message(bytes([number]), seqno=bytes([number])))
        ours.forward(_message(bytes([number])), came_from=PEER)
    for _ in range(30):
        router.mcache.shift()
        ours.mcache.shift()
    router._periodic_security_cleanup()
    assert stock is not None
    assert (len(router.equivocation_detection), len(router.recent_message_deliveries[TOPIC])) == (50, 50)
    assert (len(ours.equivocation_detection), len(ours.recent_message_deliveries)) == (0, 0)
    assert (len(ours.mcache.msgs), len(ours.mcache._sent)) == (0, 0)


class RecordedStream(Reader):
    """A stream that returns given bytes and counts how often it is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads = data, 0

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        taken, self.data = self.data[:n], self.data[n:]
        return taken


async def test_frames_are_read_in_chunks() -> None:
    payloads = [bytes([number]) * 300 for number in range(50)]
    stock, ours = (RecordedStream(b"".join(frame(payload) for payload in payloads)) for _ in range(2))
    reader = FrameReader(ours, 1000)
    for payload in payloads:
        assert await read_varint_prefixed_bytes_limited(stock, 1000) == payload
        assert await reader.next() == payload
    assert (stock.reads, ours.reads) == (150, 1)


async def test_peer_records_are_not_sent(make_transport: Any) -> None:
    (stock, router), ours = _stock(), make_transport()._gossip
    assert stock.get_hello_packet().HasField("senderRecord")
    assert not ours.get_hello_packet().HasField("senderRecord")
    queues = [_register(pubsub) for pubsub in (stock, ours)]
    await router.emit_graft(TOPIC, PEER)
    await ours.router.emit_graft(TOPIC, PEER)
    assert [rpc.HasField("senderRecord") for queue in queues for rpc in _queued(queue)] == [True, False]


class Wire:
    """A stream that sends in two pieces, as a large frame does, and remembers their order."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def write(self, data: bytes) -> None:
        self.pieces.append(data[:2])
        await wait_all_tasks_blocked()
        self.pieces.append(data[2:])


async def test_replays_never_interleave_with_the_sending_task(make_transport: Any) -> None:
    written = []
    for pubsub in (_stock()[0], make_transport()._gossip):
        wire = Wire()
        queue = _register(pubsub, stream=wire)
        for number in range(2):
            _router(pubsub).mcache.put(_message(bytes([number]), from_id=bytes([number])))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pubsub.write_msg, wire, rpc_pb2.RPC(publish=[_message(b"live")]))
            nursery.start_soon(pubsub.router.send_recent_messages, PEER, TOPIC)
        written.append((len(wire.pieces), len(_queued(queue))))
    assert written == [
        (6, 0),
        (2, 1),
    ]  # stock: three writes at once on one stream; ours: one announcement queued


async def test_each_recent_message_is_announced_once(make_transport: Any) -> None:
    ours = make_transport()._gossip
    queue = _register(ours)
    ours.router.forward(_message(b"recent"), came_from=PEER)
    for _ in range(3):
        await ours.router.send_recent_messages(PEER, TOPIC)
    assert len(_queued(queue)) == 1


@pytest.mark.parametrize(("size_bytes", "announced"), [(4096, 0), (16 * 1024, 1)])
async def test_only_large_messages_are_announced(
    make_transport: Any, size_bytes: int, announced: int
) -> None:
    stock, ours = _stock()[0], make_transport()._gossip
    other = ID.from_pubkey(create_new_key_pair(bytes([78]) * 32).public_key)
    queues = [_register(pubsub) for pubsub in (stock, ours)]
    message = _message(bytes(size_bytes))
    await stock.router.publish(other, message)
    ours.router.forward(message, came_from=other)
    counts = [sum(len(rpc.control.idontwant) for rpc in _queued(queue)) for queue in queues]
    assert counts == [1, announced]


async def test_a_raising_validator_breaks_nothing(make_transport: Any) -> None:
    def validate(*_: Any) -> Any:
        raise KeyError("ours")

    stock, _ = _stock()
    stock.set_topic_validator(TOPIC, validate, is_async_validator=False)
    with pytest.raises(KeyError):
        await stock.push_msg(PEER, _message(from_id=PEER.to_bytes(), seqno=bytes(8)))

    bugs: list[Exception] = []
    ours = make_transport()
    ours._intake._on_bug = bugs.append
    ours.subscribe(TOPIC, validate)
    ours._gossip._handle_message(_message(), PEER, str(PEER))
    assert [repr(bug) for bug in bugs] == ["KeyError('ours')"]
    assert ours.score(str(PEER)) == 0


async def test_ignored_messages_do_not_count_against_the_forwarder(make_transport: Any, tools: Any) -> None:
    stock, router = _stock()
    stock.set_topic_validator(TOPIC, lambda *_: False, is_async_validator=False)
    await stock.push_msg(PEER, _message(from_id=PEER.to_bytes(), seqno=bytes(8)))
    assert router.scorer is not None
    assert router.scorer.invalid_messages[PEER][TOPIC] == 1

    ours = make_transport()
    ours.subscribe(TOPIC, tools.validate)
    ours._gossip._handle_message(_message(b"ignore"), PEER, str(PEER))
    scorer = ours._mesh.scorer
    assert (ours.counters()["ignored"], scorer.score(PEER, [TOPIC])) == (1, 0)
    scorer.on_invalid_message(PEER, TOPIC)  # whatever the library counts has no effect
    assert scorer.score(PEER, [TOPIC]) == 0
    assert scorer.allow_publish(PEER, [TOPIC])


async def test_announced_messages_are_known_with_their_holders(make_transport: Any, tools: Any) -> None:
    message = _message(b"known")
    stock, router = _stock(), None
    pubsub, router = stock
    pubsub._msg_id_constructor = lambda m: message_id(m.topicIDs[0], m.data)
    pubsub._mark_msg_seen(message)
    router.mcache.put(message)
    assert [pubsub.seen_messages.has(identity) for identity in router.mcache.window(TOPIC)] == [False]

    ours = make_transport()
    ours.subscribe(TOPIC, tools.validate)
    ours._gossip._handle_message(message, PEER, str(PEER))
    now = trio.current_time()
    assert [ours._intake.knows(identity, now) for identity in ours._mesh.mcache.window(TOPIC)] == [True]


async def test_replies_to_small_requests_are_bounded(make_transport: Any) -> None:
    stock, ours = _stock()[0], make_transport()._gossip
    message = _message(bytes(4096), from_id=b"me", seqno=bytes(8))
    sent = []
    for pubsub in (stock, ours):
        queue = _register(pubsub)
        router = _router(pubsub)
        router.mcache.put(message)
        [identity] = router.mcache.window(TOPIC)
        for _ in range(5):
            await router.handle_iwant(rpc_pb2.ControlIWant(messageIDs=[identity] * 100), PEER)
        sent.append(sum(len(rpc.publish) for rpc in _queued(queue)))
    assert sent == [500, 3]


async def test_ihave_asks_for_a_bounded_number(make_transport: Any) -> None:
    ours = make_transport()._gossip
    queue = _register(ours)
    many = [number.to_bytes(32, "big") for number in range(4000)]
    await ours.router.handle_ihave(rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=many), PEER)
    [rpc] = _queued(queue)
    assert len(rpc.control.iwant[0].messageIDs) == 256


async def test_messages_delayed_in_a_stalled_connection_cause_no_penalty(make_transport: Any) -> None:
    """Two minutes of an honest peer's heartbeats arrive in one second, as after a partition."""
    transport = make_transport()
    mesh, queue = transport._mesh, _register(transport._gossip)
    known = bytes(32)
    for minute in range(2):
        mesh.mesh[TOPIC].add(PEER)
        await mesh.handle_prune(rpc_pb2.ControlPrune(topicID=TOPIC, backoff=60), PEER)
        for second in range(60):
            new = (60 * minute + second + 1).to_bytes(32, "big")
            await mesh.handle_ihave(rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=[new]), PEER)
            await mesh.handle_iwant(rpc_pb2.ControlIWant(messageIDs=[known]), PEER)
        await mesh.handle_graft(rpc_pb2.ControlGraft(topicID=TOPIC), PEER)
    assert mesh.scorer.score(PEER, [TOPIC]) == 0.0
    wanted = [
        identity for rpc in _queued(queue) for iwant in rpc.control.iwant for identity in iwant.messageIDs
    ]
    assert len(wanted) == 10  # data that arrives at once is not read, from any peer


async def test_a_flood_of_grafts_draws_few_answers(make_transport: Any) -> None:
    transport = make_transport()
    mesh, queue = transport._mesh, _register(transport._gossip)
    await mesh.handle_prune(rpc_pb2.ControlPrune(topicID=TOPIC, backoff=60), PEER)
    graft = rpc_pb2.ControlMessage(graft=[rpc_pb2.ControlGraft(topicID=TOPIC)] * 64)
    for _ in range(200):
        await mesh.handle_rpc(rpc_pb2.RPC(control=graft), PEER)
    answers = [prune for rpc in _queued(queue) for prune in rpc.control.prune]
    assert 0 < len(answers) <= 64 + 10


async def test_a_relay_of_many_messages_does_not_count_as_spammer(make_transport: Any) -> None:
    stock, router = _stock()
    passed = [router._check_spam_protection(PEER, _message(bytes([number]))) for number in range(30)]
    assert passed.count(True) == 10
    assert stock is not None
    ours, recorder = make_transport(), Recorder()
    ours.subscribe(TOPIC, recorder.validate)
    for number in range(30):
        ours._gossip._handle_message(_message(b"%d" % number), PEER, str(PEER))
    assert recorder.messages == [b"%d" % number for number in range(30)]


async def test_a_mesh_within_its_bounds_is_not_changed(make_transport: Any) -> None:
    grown = []
    for pubsub in (_stock(eclipse_protection_enabled=False)[0], make_transport()._gossip):
        for number in range(12):
            _register(pubsub, ID.from_pubkey(create_new_key_pair(bytes([100 + number]) * 32).public_key))
        members = _router(pubsub).mesh[TOPIC]
        for peer in list(members)[5:]:
            members.discard(peer)
        _router(pubsub).mesh_heartbeat()
        grown.append(len(members))
    assert grown == [7, 5]


def test_only_the_noise_handshake_is_offered(make_transport: Any) -> None:
    hosts = (_stock_host(), make_transport()._host)
    offered = [set(host.get_network().upgrader.security_multistream.transports) for host in hosts]
    assert "/plaintext/2.0.0" in offered[0]
    assert offered[1] == {"/noise"}


def test_the_auto_connector_dials_no_peer(make_transport: Any) -> None:
    connectors = [host.get_network().auto_connector for host in (_stock_host(), make_transport()._host)]
    for connector in connectors:
        with contextlib.suppress(StopIteration):
            connector.start().send(None)
    assert [connector._started for connector in connectors] == [True, False]


async def test_receive_windows_are_returned_in_halves(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(2)
    await swarm.wait_until_connected(members)
    updates = []
    for member in members:
        for connections in member.transport._host.get_network().connections.values():
            updates += [type(s).__name__ for c in connections for s in c.muxed_conn.streams.values()]
    assert set(updates) == {"BatchingStream"}
    large = bytes(100 * 1024)
    for number in range(12):  # more than four windows: it flows only if credit comes back
        await members[0].publish(bytes([number]) + large)
        await tools.eventually(lambda accepted=number + 1: len(members[1].accepted) == accepted)


async def test_a_connection_holds_a_bounded_number_of_bytes(swarm: Any, tools: Any, hostile: Any) -> None:
    victim = await swarm.start(1, limits=TransportLimits(max_buffered_bytes_per_connection=100_000))
    await hostile.connect(victim.transport.addresses[0])
    release = trio.Event()

    async def unread(stream: Any) -> None:
        await release.wait()

    victim.transport._host.set_stream_handler(TProtocol("/unread"), unread)
    stream = await hostile.open(victim.peer_id, "/unread")
    with contextlib.suppress(StreamError):
        await stream.write(bytes(200_000))  # within yamux' window of 256 KiB, beyond our bound
    await tools.eventually(lambda: victim.transport.peers() == ())
    release.set()
