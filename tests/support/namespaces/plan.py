"""Machines of a small network: addresses, routers, sides and delays; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

NODE_PORT: Final = 4001
SERVER_PORT: Final = 8000
"""Of the server of answers, on the loopback address of every node's namespace."""

HOME_NETWORK: Final = "192.168.1"
"""The same behind every router, as at home."""

MAX_SITES: Final = 120

_NEXT_DOOR_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Site:
    """One node's place.

    Attributes:
        name: of the node; its namespace's name ends in it.
        address: its public IPv4 address, or its router's. No two sites are in one /24.
        behind_router: whether it has an address of a home network, and only its router a public one, which
            translates addresses and lets nothing in that was not asked for.
        side: 0 or 1; a partition separates these. None for a site that it separates from nobody.
    """

    name: str
    address: str
    behind_router: bool
    side: int | None

    @property
    def uplink(self) -> str:
        """The end of the name of the namespace that has the public address."""
        return f"{self.name}r" if self.behind_router else self.name

    def moved(self) -> Site:
        """Return the site after its provider gave it another address."""
        first, second, third, last = self.address.split(".")
        return replace(self, address=f"{first}.{second}.{int(third) + MAX_SITES}.{last}")


def sites(count: int, share_behind_routers: float, guests: int = 0) -> tuple[Site, ...]:
    """Return a number of sites, half of them on each side; the first has a public address, to be met at.

    Addresses are of the network that RFC 2544 reserves for measurements: unlike those of home networks they
    mean the same host to everybody, and nobody on the internet has one.

    Args:
        share_behind_routers: of the sites that are not guests.
        guests: further sites, all with public addresses.

    Raises:
        ValueError: there are more than the network has room for.
    """
    if not 2 <= count + guests <= MAX_SITES:
        raise ValueError(f"{count + guests} sites; 2 to {MAX_SITES} are possible")
    hidden = round(count * share_behind_routers)
    so_far = [number * hidden // (count - 1) for number in range(count)]
    behind = {number for number in range(1, count) if so_far[number] > so_far[number - 1]}
    return tuple(
        Site(f"n{number:02d}", f"198.18.{number + 1}.1", number in behind, number % 2)
        for number in range(count + guests)
    )


def delays(count: int, seed: int, min_ms: float, max_ms: float, guests: int = 0) -> list[list[float]]:
    """Return the delay from each site to each other in seconds, the same in both directions.

    Args:
        guests: how many of them, the last ones, are next to every other: an attacker chooses where to live.
    """
    rng = random.Random(seed)
    table = [[0.0] * count for _ in range(count)]
    for one in range(count):
        for other in range(one):
            delay = rng.uniform(min_ms, max_ms) / 1000
            table[one][other] = table[other][one] = delay if one < count - guests else _NEXT_DOOR_SECONDS
    return table
