"""Units of memory in bytes, and of amounts on a chain in the smallest unit that contracts count."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

COIN: Final = 10**18
"""A coin, in wei."""

TOKEN: Final = 10**18
"""A token of a swarm: it has 18 decimals, the usual number."""
