"""`python -m support.namespaces.relay`: the internet between sites, as a process that forwards packets.

Every site's uplink is a TUN device. What is read from one is written to the one that has the destination's
address, after a delay, unless chance or a partition takes it. So TCP meets what it meets on the internet:
delays, losses and silence, and no kernel module is needed for it.

It takes orders as JSON lines on standard input and answers each with one on standard output.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from support.namespaces.kernel import open_tun

INTERFACE: Final = "wan"
_MAX_BYTES: Final = 65_536
_SOURCE, _DESTINATION = slice(12, 16), slice(16, 20)
"""Of an IPv4 header."""

_MAX_READ: Final = 64
"""Packets of one device at a time: no site keeps the relay from others."""


class Relay:
    """Forwards packets between uplinks.

    Attributes:
        loss: share of all packets that are lost.
        sides: by site; packets between different ones are lost while there is a partition, but for a site
            that is on no side.
    """

    def __init__(self, devices: Sequence[int], delays: Sequence[Sequence[float]], seed: int) -> None:
        self._devices = list(devices)
        self._sites = {device: site for site, device in enumerate(devices)}
        self._delays = delays
        self._rng = random.Random(seed)
        self._owners: dict[bytes, int] = {}
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self.loss = 0.0
        self.sides: Sequence[int | None] | None = None
        self.counts: Counter[str] = Counter()

    def assign(self, site: int, address: str) -> None:
        """Give a site an address, its only one."""
        self._owners = {owned: owner for owned, owner in self._owners.items() if owner != site}
        self._owners[socket.inet_aton(address)] = site

    def read(self, device: int, now: float) -> None:
        """Take what a site sends."""
        for _ in range(_MAX_READ):
            try:
                packet = os.read(device, _MAX_BYTES)
            except BlockingIOError:
                return
            self._take(self._sites[device], packet, now)

    def _take(self, site: int, packet: bytes, now: float) -> None:
        target = self._owners.get(packet[_DESTINATION]) if packet[0] >> 4 == 4 else None
        if target is None or self._owners.get(packet[_SOURCE]) != site:
            self.counts["astray"] += 1  # IPv6 announcements, and connections of an address that is gone
        elif self._is_cut(site, target):
            self.counts["cut"] += 1
        elif self._rng.random() < self.loss:
            self.counts["lost"] += 1
        else:
            self.counts["forwarded"] += 1
            self.counts["bytes"] += len(packet)
            due = now + self._delays[site][target]
            heapq.heappush(self._waiting, (due, next(self._order), target, packet))

    def _is_cut(self, site: int, target: int) -> bool:
        sides = self.sides
        return sides is not None and None not in (sides[site], sides[target]) and sides[site] != sides[target]

    def write_due(self, now: float) -> float | None:
        """Deliver what is due; return the seconds until the next packet is."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._waiting)
            try:
                os.write(self._devices[target], packet)
            except OSError:  # the interface is down, or its queue is full: both happen to real packets
                self.counts["refused"] += 1
        return max(0.0, self._waiting[0][0] - now) if self._waiting else None


def main() -> None:
    """Open the devices that the first line names, then forward until standard input ends."""
    terms = json.loads(sys.stdin.readline())
    devices = [open_tun(name, INTERFACE) for name in terms["namespaces"]]
    relay = Relay(devices, terms["delays"], terms["seed"])
    poll = select.epoll()
    for descriptor in (*devices, sys.stdin.fileno()):
        poll.register(descriptor, select.EPOLLIN)
    _say({})
    while True:
        pause = relay.write_due(time.monotonic())
        events = poll.poll(-1 if pause is None else pause)
        now = time.monotonic()
        for descriptor, _ in events:
            if descriptor != sys.stdin.fileno():
                relay.read(descriptor, now)
            elif line := sys.stdin.readline():
                _say(_obey(relay, json.loads(line)))
            else:
                return


def _obey(relay: Relay, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order, of which answers come after each other: at most one line waits at a time."""
    match order["order"]:
        case "assign":
            relay.assign(order["site"], order["address"])
        case "loss":
            relay.loss = order["share"]
        case "sides":
            relay.sides = order["sides"]
    return dict(relay.counts) | {"cpu_seconds": time.process_time()}


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
