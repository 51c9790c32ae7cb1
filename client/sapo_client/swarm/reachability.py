"""Whether other nodes can connect to this one, by its peers' attempts. No I/O.

A node behind a router or firewall can connect to others, but not the other way round. It cannot detect that
itself, so it asks peers to dial back. A peer dials only the IP address from which the asker is connected, so
a request cannot direct it to another host.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sapo_client.swarm.addresses import Scope, network_group_of, network_of, scope_of

PROTOCOL: Final = "/sapo/reachable/1"
MAX_PAYLOAD_BYTES: Final = 128  # a port, or a state and an IP address

DIAL_SECONDS: Final = 5.0
"""Time in which the asker must answer a dial; half of a request's time-out, so that the response arrives."""

_MAX_ANSWERS: Final = 5  # peers whose last answer counts
_ENOUGH_REFUSALS: Final = 2  # one peer may answer falsely, or have no connection itself
_ENOUGH_REACHED: Final = 2  # peers that name an address, before it is told to others
_ENOUGH_NETWORKS: Final = 2  # a firewall may let one in

_ANSWER: Final = re.compile(r"(reached|refused|busy) ([0-9a-fA-F.:]{2,45})")


class DialResult(StrEnum):
    """Status of a response: the result of the dial."""

    REACHED = "reached"
    REFUSED = "refused"
    BUSY = "busy"


class Reachability(StrEnum):
    """The state derived from the answers of several peers."""

    UNKNOWN = "unknown"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class DialAnswer:
    """Response of one peer: the result, and the IP address at which it sees the asker."""

    result: DialResult
    host: str

    def encode(self) -> bytes:
        """Return the payload of the response."""
        return f"{self.result} {self.host}".encode()


def encode_port(port: int) -> bytes:
    """Return the payload of a request: the TCP port at which the asker listens."""
    return str(port).encode()


def parse_port(payload: bytes) -> int | None:
    """Return the port of a request; None if it is none."""
    if not re.fullmatch(rb"[1-9][0-9]{0,4}", payload) or int(payload) > 0xFFFF:
        return None
    return int(payload)


def parse_answer(payload: bytes) -> DialAnswer | None:
    """Return the answer in a response; None if it is none."""
    match = _ANSWER.fullmatch(payload.decode("ascii", errors="replace"))
    return DialAnswer(DialResult(match[1]), match[2]) if match else None


def is_proven(came_from: Iterable[str], connected_with: Iterable[str]) -> bool:
    """Whether inbound connections prove that other nodes can connect.

    An inbound connection cannot be faked. Peers of two networks are required: /16 networks of IPv4 in the
    internet, single hosts in a local network. Local peers prove nothing if any peer is connected from the
    internet.

    Args:
        came_from: IP addresses of the peers that opened their connections.
        connected_with: those of all peers.
    """
    widest = max(map(scope_of, connected_with), default=Scope.MACHINE)
    network = network_group_of if widest is Scope.INTERNET else network_of
    return len({network(host) for host in came_from if scope_of(host) is widest}) >= _ENOUGH_NETWORKS


class DialAnswers:
    """The last answers of a few peers, one each; beyond the limit the oldest is dropped."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, DialAnswer] = OrderedDict()

    def add(self, peer_id: str, answer: DialAnswer) -> None:
        """Keep a peer's answer, unless the peer was too busy to dial."""
        if answer.result is DialResult.BUSY:
            return
        self._answers[peer_id] = answer
        self._answers.move_to_end(peer_id)
        if len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)

    def state(self) -> Reachability:
        """Return the state that at least half of the answers support; "unreachable" needs two failed dials.

        If any peer is connected from the internet, answers of local peers are left out, since they do not
        pass the router.
        """
        scopes = [scope_of(answer.host) for answer in self._answers.values()]
        counted = [
            answer
            for answer, scope in zip(self._answers.values(), scopes, strict=True)
            if scope is max(scopes)
        ]
        reached = sum(answer.result is DialResult.REACHED for answer in counted)
        refused = len(counted) - reached
        if reached >= max(1, refused):
            return Reachability.REACHABLE
        return Reachability.UNREACHABLE if refused >= _ENOUGH_REFUSALS else Reachability.UNKNOWN

    def forget(self) -> None:
        """Drop all answers, which concern an address that is not used any more."""
        self._answers.clear()

    def reached_hosts(self) -> tuple[str, ...]:
        """Return the IP addresses at which two peers or more reached this node: one may answer falsely."""
        reached = [answer.host for answer in self._answers.values() if answer.result is DialResult.REACHED]
        return tuple(sorted(host for host in set(reached) if reached.count(host) >= _ENOUGH_REACHED))
