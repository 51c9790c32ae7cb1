"""Seeds of random streams, derived from their names."""

from __future__ import annotations

from hashlib import sha256


def sampling_seed(name: str) -> int:
    """Return a 63-bit seed: the head of the name's SHA-256."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 1
