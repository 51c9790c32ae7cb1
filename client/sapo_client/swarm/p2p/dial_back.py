"""The reachability probe: asks peers to dial this node back, and dials peers that ask."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import trio

from sapo_client.swarm.addresses import PeerAddress, parse_address
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.p2p.requests import Requests
from sapo_client.swarm.rate_limit import TokenBucket
from sapo_client.swarm.reachability import (
    DIAL_SECONDS,
    MAX_PAYLOAD_BYTES,
    PROTOCOL,
    DialAnswer,
    DialAnswers,
    DialResult,
    Reachability,
    encode_port,
    is_proven,
    parse_answer,
    parse_port,
)
from sapo_client.swarm.transport import TransportError

_LOG = logging.getLogger(__name__)

FIRST_SECONDS: Final = 5.0
"""Delay of the first request after the start, until there are connections."""

MAX_SECONDS: Final = 900.0
"""Interval of requests once the state is known, since routers and addresses change rarely."""

_HELLO: Final = b"\x13/multistream/1.0.0\n"
"""The first bytes of every libp2p node; anything else at that port is another program."""

_PER_HOST: Final = Rate(per_second=1 / 60, burst=3)
"""Rate of dials to one IP address, which a few nodes may share."""

_MAX_HOSTS: Final = 1024
_MAX_AT_ONCE: Final = 4


class DialBack:
    """Both sides of the reachability probe.

    Args:
        requests: sends and serves the protocol's requests.
        connected: the ids of all peers.
        chosen: the ids of those to which this node opened the connection, which an attacker cannot force.
        remote_host: the IP address at the other end of a peer's connection.
        own_addresses: the addresses at which this node listens, or that it announces.
        announced: only the announced ones.
        forwarded: returns the port that a router says it forwards to this node.
    """

    def __init__(
        self,
        requests: Requests,
        *,
        connected: Callable[[], tuple[str, ...]],
        chosen: Callable[[], tuple[str, ...]],
        remote_host: Callable[[str], str | None],
        own_addresses: Callable[[], tuple[PeerAddress, ...]],
        announced: tuple[PeerAddress, ...] = (),
        forwarded: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._requests = requests
        self._connected = connected
        self._chosen = chosen
        self._remote_host = remote_host
        self._own_addresses = own_addresses
        self._forwarded = forwarded
        self._wake = trio.Event()
        self._announced_hosts = {address.host for address in announced if address.kind in {"ip4", "ip6"}}
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._at_once = trio.CapacityLimiter(_MAX_AT_ONCE)
        self._asked_seconds: dict[str, float] = {}
        self._scope = trio.CancelScope()
        self.answers = DialAnswers()
        requests.serve(PROTOCOL, self._answer)

    async def run(self) -> None:
        """Ask one peer after another, rarely once the answers agree, until stopped."""
        pause_seconds = FIRST_SECONDS
        with self._scope:
            while True:
                self._wake = trio.Event()
                with trio.move_on_after(pause_seconds):
                    await self._wake.wait()
                await self.ask_next()
                known = self.state() is not Reachability.UNKNOWN
                pause_seconds = min(MAX_SECONDS, pause_seconds * 2) if known else FIRST_SECONDS * 2

    def stop(self) -> None:
        """Ask no more."""
        self._scope.cancel()

    def begin_anew(self) -> None:
        """Drop all answers and ask again at once, because the port to dial has changed."""
        self.answers.forget()
        self._asked_seconds = {}
        self._wake.set()

    def state(self) -> Reachability:
        """Return the state by the answers; without enough of them, by inbound connections.

        A node that only has inbound connections has chosen no peer that it could ask.
        """
        said = self.answers.state()
        if said is Reachability.UNKNOWN and is_proven(*self._hosts()):
            return Reachability.REACHABLE
        return said

    def _hosts(self) -> tuple[list[str], list[str]]:
        """Return the IP addresses of peers that came by themselves, and of all peers."""
        chosen = set(self._chosen())
        hosts = {peer_id: self._remote_host(peer_id) for peer_id in self._connected()}
        came = [host for peer_id, host in hosts.items() if host is not None and peer_id not in chosen]
        return came, [host for host in hosts.values() if host is not None]

    async def ask_next(self) -> None:
        """Ask the chosen peer that was asked longest ago."""
        peer_id = min(self._chosen(), key=lambda each: self._asked_seconds.get(each, -1.0), default=None)
        port = self._port()
        if peer_id is None or port is None:
            return
        self._asked_seconds = {each: self._asked_seconds.get(each, -1.0) for each in self._chosen()}
        self._asked_seconds[peer_id] = trio.current_time()
        try:
            payload = await self._requests.ask(
                peer_id, PROTOCOL, encode_port(port), max_response_bytes=MAX_PAYLOAD_BYTES
            )
        except TransportError as error:
            _LOG.debug("%s did not say whether it reaches this node: %s", peer_id, error)
            return
        answer = parse_answer(payload)
        if answer is not None and self._is_about(answer.host):
            self.answers.add(peer_id, answer)

    def reached_at(self, peer_id: str) -> tuple[PeerAddress, ...]:
        """Return the addresses at which several peers reached this node, whose peer id is given."""
        texts = (
            f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{self._port()}/p2p/{peer_id}"
            for host in self.answers.reached_hosts()
        )
        return tuple(address for address in map(parse_address, texts) if address is not None)

    def _port(self) -> int | None:
        """Return the TCP port to dial back; None before this node listens."""
        return self._forwarded() or next((address.port for address in self._own_addresses()), None)

    def _is_about(self, host: str) -> bool:
        """Whether a dial to this IP address says something about the announced ones."""
        return not self._announced_hosts or host in self._announced_hosts

    async def _answer(self, asker: str, payload: bytes) -> bytes:
        host, port = self._remote_host(asker), parse_port(payload)
        if host is None or port is None:
            return b""
        if not self._has_room(host):
            return DialAnswer(DialResult.BUSY, host).encode()
        async with self._at_once:
            reached = await _says_hello(host, port)
        return DialAnswer(DialResult.REACHED if reached else DialResult.REFUSED, host).encode()

    def _has_room(self, host: str) -> bool:
        now_seconds = trio.current_time()
        bucket = self._buckets.setdefault(host, TokenBucket(_PER_HOST, now_seconds))
        self._buckets.move_to_end(host)
        if len(self._buckets) > _MAX_HOSTS:
            self._buckets.popitem(last=False)
        return self._at_once.available_tokens > 0 and bucket.take(1, now_seconds)


async def _says_hello(host: str, port: int) -> bool:
    """Whether a libp2p node answers at an IP address and port."""
    received = b""
    with trio.move_on_after(DIAL_SECONDS):
        try:
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(_HELLO)
                while len(received) < len(_HELLO) and (chunk := await stream.receive_some(len(_HELLO))):
                    received += chunk
        except (OSError, trio.BrokenResourceError):
            return False
    return received.startswith(_HELLO)
