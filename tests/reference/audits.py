"""Section 7.5: the tree that an account commits to, the draw, and what it pays."""

from hashlib import sha256
from typing import Any

from reference.derive import start, tagged


def grace_ms(manifest: dict[str, Any]) -> int:
    """Return g in milliseconds."""
    return min(30_000, 100 * int(manifest["epoch_seconds"]))


def slots_of(bits: bytes) -> list[int]:
    """Return the slots of a commitment, ascending."""
    return [slot for slot in range(8 * len(bits)) if bits[slot // 8] & 2 ** (slot % 8)]


def root(contents: list[bytes]) -> bytes:
    """Return the root over content ids, from the top down."""
    if len(contents) == 1:
        return sha256(b"\x02" + contents[0]).digest()
    half = 1
    while 2 * half < len(contents):
        half *= 2
    return sha256(b"\x03" + root(contents[:half]) + root(contents[half:])).digest()


def path(contents: list[bytes], place: int) -> list[bytes]:
    """Return the words beside the way from a place to the root, from the leaf upwards."""
    if len(contents) == 1:
        return []
    half = 1
    while 2 * half < len(contents):
        half *= 2
    left, right = contents[:half], contents[half:]
    if place < half:
        return [*path(left, place), root(right)]
    return [*path(right, place - half), root(left)]


def draw(swarm: bytes, epoch: int, block_hash: bytes) -> bytes:
    """Return the randomness of an epoch's audit."""
    return tagged("draw", swarm, epoch.to_bytes(8, "big"), block_hash)


def draw_ms(manifest: dict[str, Any], epoch: int) -> int:
    """Return from when on the first block draws, in milliseconds."""
    return start(manifest, epoch + 1) + 2 * grace_ms(manifest)


def is_drawn(drawn: bytes, account: bytes, one_in: int) -> bool:
    """Return whether an account is audited."""
    return int.from_bytes(tagged("drawn", drawn, account)[:8], "big") % one_in == 0


def drawn_slots(drawn: bytes, account: bytes, slots: list[int], samples: int) -> list[int]:
    """Return the slots that are audited, ascending."""
    taken: list[int] = []
    number = 0
    while len(taken) < min(samples, len(slots)):
        word = tagged("drawn", drawn, account, number.to_bytes(4, "big"))
        slot = slots[int.from_bytes(word[:8], "big") % len(slots)]
        if slot not in taken:
            taken.append(slot)
        number += 1
    return sorted(taken)


def points(vector: dict[str, int]) -> int:
    """Return the points of a drawn account."""
    good = max(0, vector["drawn"] - 2 * vector["failed"] - vector["undecided"])
    return vector["one_in"] * min(vector["cap"], vector["committed"] * good // vector["drawn"])
