"""Section 3's strict Ed25519 in plain arithmetic, in extended coordinates (RFC 8032, 5.1.4)."""

from functools import lru_cache
from hashlib import sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]
ZERO: Point = (0, 1, 1, 0)


@lru_cache(maxsize=4096)
def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is valid under the strict rule."""
    if len(key) != 32 or len(signature) != 64:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    a, r = _unpack(key), _unpack(signature[:32])
    if scalar >= L or a is None or r is None or _is_small(a) or _is_small(r):
        return False
    k = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
    left = _both(scalar, k, _negative(a))  # S·B - k·A, which must be R
    return _same(left, r)


def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _double(p: Point) -> Point:
    a, b, c = p[0] * p[0] % P, p[1] * p[1] % P, 2 * p[2] * p[2] % P
    h = a + b
    e, g = h - (p[0] + p[1]) ** 2, a - b
    f = c + g
    return e * f % P, g * h % P, f * g % P, e * h % P


def _both(s: int, k: int, a: Point) -> Point:
    """Return ``s·B + k·A``, both read bit by bit from the top."""
    total, sums = ZERO, (None, BASE, a, _add(BASE, a))
    for bit in range(255, -1, -1):
        total = _double(total)
        if (addend := sums[(s >> bit & 1) | (k >> bit & 1) << 1]) is not None:
            total = _add(total, addend)
    return total


def _negative(p: Point) -> Point:
    return P - p[0], p[1], p[2], P - p[3]


def _same(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


@lru_cache(maxsize=1024)
def _is_small(p: Point) -> bool:
    return _same(_double(_double(_double(p))), ZERO)


@lru_cache(maxsize=1024)
def _unpack(encoded: bytes) -> Point | None:
    """Return the point of an encoding whose y is reduced; none if there is no such point."""
    number = int.from_bytes(encoded, "little")
    y, odd = number % 2**255, number >> 255
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    if x * x % P != square:
        return None
    x = P - x if x % 2 != odd else x
    return x % P, y, 1, x * y % P


def _base() -> Point:
    point = _unpack((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


BASE = _base()
