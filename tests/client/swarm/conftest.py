"""Real transports on loopback, and a peer that can write any bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from sapo_client.swarm.addresses import Scope, scope_of
from sapo_client.swarm.limits import DialLimits, TransportLimits
from sapo_client.swarm.transport import AuthorOf, Validator
from sapo_client.swarm.vouched import VouchedPeers
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule

TOPIC = "sapo/1/test/rollouts"
PATIENCE_SECONDS = 120.0  # for conditions that take milliseconds on an idle machine

# The same behaviour as in production, on the time scale of a test.
QUICK_DIAL = DialLimits(
    target_peers=16,
    first_backoff_seconds=0.05,
    max_backoff_seconds=0.5,
    tick_seconds=0.05,
    first_exchange_seconds=0.1,
    max_exchange_seconds=1.0,
)


def validate_by_first_byte(data: bytes, _forwarder: str) -> Verdict:
    """Return the verdict that the first bytes of the message ask for."""
    if data.startswith(b"raise"):
        raise RemoteProtocolError(Rule.ENVELOPE_KEYS, "as asked for")
    if data.startswith(b"bug"):
        raise KeyError("as asked for")
    return {b"i": Verdict.IGNORE, b"r": Verdict.REJECT}.get(data[:1], Verdict.ACCEPT)


async def eventually(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds."""
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.01)


@dataclass
class Member:
    """One running transport, with the messages that its validator accepted."""

    transport: Any
    validator: Validator
    scope: trio.CancelScope
    stopped: trio.Event
    accepted: list[bytes] = field(default_factory=list)

    @property
    def peer_id(self) -> str:
        return str(self.transport.peer_id)

    def peer_ids(self) -> set[str]:
        return {peer.peer_id for peer in self.transport.peers()}

    def validate(self, data: bytes, forwarder: str) -> Verdict:
        verdict = self.validator(data, forwarder)
        if verdict is Verdict.ACCEPT:
            self.accepted.append(data)
        return verdict

    async def publish(self, data: bytes) -> int:
        return int(await self.transport.publish(TOPIC, data))

    async def stop(self) -> None:
        self.scope.cancel()
        await self.stopped.wait()


@dataclass
class LoopbackSwarm:
    """Starts members in one nursery; `bugs` collects what our own callbacks raised."""

    nursery: trio.Nursery
    bugs: list[Exception] = field(default_factory=list)

    async def start(
        self,
        number: int,
        *,
        bootstrap: tuple[str, ...] = (),
        limits: TransportLimits | None = None,
        dial: DialLimits = QUICK_DIAL,
        validator: Validator = validate_by_first_byte,
        author_of: AuthorOf | None = None,
        **options: Any,
    ) -> Member:
        from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

        transport = Libp2pTransport(
            bytes([number]) * 32,
            on_bug=self.bugs.append,
            bootstrap=bootstrap,
            limits=limits,
            dial=dial,
            **options,
        )
        member = Member(transport, validator, trio.CancelScope(), trio.Event())
        transport.subscribe(TOPIC, member.validate, author_of)
        await self.nursery.start(_run, member)
        return member

    async def start_members(self, count: int, **options: Any) -> list[Member]:
        """Start members that know one bootstrap peer and no other."""
        members = [await self.start(1, **options)]
        for number in range(2, count + 1):
            members.append(await self.start(number, bootstrap=members[0].transport.addresses, **options))
        return members

    async def wait_until_connected(self, members: list[Member]) -> None:
        """Wait until every member is connected and subscribed with every other."""
        await eventually(lambda: all(len(member.transport.peers()) == len(members) - 1 for member in members))
        await eventually(lambda: all(subscribed_peers(member) == len(members) - 1 for member in members))


def subscribed_peers(member: Member) -> int:
    """Return how many peers a message of this member would go to."""
    gossip = member.transport._gossip
    return len(gossip.peer_topics.get(TOPIC, set()) & set(gossip.peers))


def host_of_this_machine() -> str:
    """Return an IPv4 address of this machine in a network, or skip the test."""
    from ifaddr import get_adapters

    hosts = [ip.ip for adapter in get_adapters() for ip in adapter.ips if ip.is_IPv4]
    for host in hosts:
        if isinstance(host, str) and scope_of(host) is not Scope.MACHINE:
            return host
    pytest.skip("this machine has no address but loopback")


async def _run(member: Member, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    with member.scope:
        await member.transport.run(task_status=task_status)
    member.stopped.set()


@pytest.fixture
async def swarm() -> Any:
    async with trio.open_nursery() as nursery:
        yield LoopbackSwarm(nursery)
        nursery.cancel_scope.cancel()


class HostilePeer:
    """A peer with a proven identity that writes arbitrary bytes."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.peer_id = str(host.get_id())

    async def connect(self, address: str) -> None:
        from libp2p.peer.peerinfo import info_from_p2p_addr
        from multiaddr.multiaddr import Multiaddr

        victim = info_from_p2p_addr(Multiaddr(address)).peer_id
        await self.disconnect(str(victim))
        await eventually(lambda: victim not in self._host.get_network().connections)
        self._host.get_network()._negative_peer_cache.clear()
        await self._host.connect(info_from_p2p_addr(Multiaddr(address)))

    async def open(self, victim: str, protocol: str = "/meshsub/1.1.0") -> Any:
        from libp2p.custom_types import TProtocol
        from libp2p.peer.id import ID

        return await self._host.new_stream(ID.from_base58(victim), [TProtocol(protocol)])

    async def disconnect(self, victim: str) -> None:
        from libp2p.peer.id import ID

        await self._host.disconnect(ID.from_base58(victim))


@pytest.fixture
async def hostile() -> Any:
    from sapo_client.swarm.p2p.host import build_host

    host = build_host(
        bytes([250]) * 32,
        limits=TransportLimits(max_streams_per_connection=10_000),
        dial=QUICK_DIAL,
        admits=lambda _: True,
        vouched=VouchedPeers(),
        blame=lambda *_: None,
        report=lambda _: None,
    )
    async with host.run([]):
        yield HostilePeer(host)


@pytest.fixture
def make_transport() -> Callable[..., Any]:
    """Return a function that builds a transport which does not run, to test one part of it."""
    from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

    def make(number: int = 1, **options: Any) -> Any:
        return Libp2pTransport(bytes([number]) * 32, on_bug=_raise, dial=QUICK_DIAL, **options)

    return make


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
def tools() -> Any:
    """Return the helpers of this file, which tests cannot import."""
    return Tools()


class Tools:
    TOPIC = TOPIC
    PATIENCE_SECONDS = PATIENCE_SECONDS
    QUICK_DIAL = QUICK_DIAL
    eventually: Callable[[Callable[[], bool]], Awaitable[None]] = staticmethod(eventually)
    subscribed_peers = staticmethod(subscribed_peers)
    host_of_this_machine = staticmethod(host_of_this_machine)
    validate = staticmethod(validate_by_first_byte)
    replace = staticmethod(replace)
