"""The Ed25519 curve in plain arithmetic (RFC 8032), slow and not constant-time, for edge cases in tests."""

from dataclasses import dataclass
from hashlib import sha512
from typing import Final

P: Final = 2**255 - 19
L: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, -1, P) % P


@dataclass(frozen=True)
class Point:
    """A point of the curve in affine coordinates."""

    x: int
    y: int

    def __add__(self, other: "Point") -> "Point":
        k = D * self.x * other.x * self.y * other.y % P
        x = (self.x * other.y + other.x * self.y) * pow(1 + k, -1, P)
        y = (self.y * other.y + self.x * other.x) * pow(1 - k, -1, P)
        return Point(x % P, y % P)

    def __rmul__(self, factor: int) -> "Point":
        total, double = Point(0, 1), self
        while factor:
            total = total + double if factor & 1 else total
            double, factor = double + double, factor >> 1
        return total

    def encode(self) -> bytes:
        """Return the canonical 32 bytes."""
        return (self.y | (self.x & 1) << 255).to_bytes(32, "little")


def lift(y: int, odd: bool) -> Point | None:
    """Return the point with a y coordinate and a parity of x, or none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square or (x == 0 and odd):
        return None
    return Point(x if x & 1 == odd else P - x, y)


def decode(encoded: bytes) -> Point | None:
    """Return the point of an encoding, non-canonical ones included."""
    number = int.from_bytes(encoded, "little")
    return lift((number & (1 << 255) - 1) % P, bool(number >> 255))


def challenge(point: bytes, key: bytes, message: bytes) -> int:
    """Return the scalar k of a signature."""
    return int.from_bytes(sha512(point + key + message).digest(), "little") % L


def _base() -> Point:
    base = lift(4 * pow(5, -1, P) % P, odd=False)
    assert base is not None
    return base


def _torsion() -> Point:
    """Return a point of order 8: the prime-order part of some point removed, until enough is left."""
    for y in range(2, 100):
        if (point := lift(y, odd=False)) is not None and 4 * (left := L * point) != ZERO:
            return left
    raise AssertionError("there are points of order 8")


ZERO: Final = Point(0, 1)
BASE: Final = _base()
TORSION: Final = _torsion()
