"""Inbound connections in their handshake: whose place a newcomer takes when all are taken. No I/O.

A connection in its handshake belongs to nobody known, and costs an attacker nothing: it would hold a place
for as long as a handshake may take, and then the next one. So a newcomer replaces one of those: one of the
provider (IPv4 /16, IPv6 /32) with most of them, there one of the network (IPv4 address, IPv6 /64) with most,
there the oldest. An attacker displaces its own connections as long as it has more of them than honest
newcomers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from sapo_client.swarm.addresses import network_group_of, network_of


class Handshakes:
    """The inbound connections that wait for a place or are in their handshake, oldest first."""

    def __init__(self) -> None:
        self._places: dict[trio.CancelScope, tuple[str, str]] = {}

    @contextmanager
    def begin(self, host: str) -> Iterator[trio.CancelScope]:
        """Enter a handshake with a host; the scope is cancelled if another connection takes its place."""
        with trio.CancelScope() as scope:
            self._places[scope] = (network_group_of(host), network_of(host))
            try:
                yield scope
            finally:
                self._places.pop(scope, None)

    def end_another(self, newcomer: trio.CancelScope) -> bool:
        """End a handshake, so that a newcomer gets its place; return whether there was one."""
        others = [(scope, place) for scope, place in self._places.items() if scope is not newcomer]
        if not others:
            return False
        groups = Counter(group for group, _ in self._places.values())
        networks = Counter(network for _, network in self._places.values())
        found, _ = max(others, key=lambda each: (groups[each[1][0]], networks[each[1][1]]))
        del self._places[found]
        found.cancel()
        return True
