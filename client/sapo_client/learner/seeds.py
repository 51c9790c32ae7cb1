"""Seeds of samplers, by name."""

from __future__ import annotations

from hashlib import sha256


def sampling_seed(name: str) -> int:
    """A seed of 63 bits that no other name has, but for chance."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 1
