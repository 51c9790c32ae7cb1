"""The edge cases of Ed25519 on which libraries disagree, built by arithmetic.

The twelve are those of "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko, 2020), not its bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from support.edwards import BASE, TORSION, ZERO, L, P, Point, challenge, decode

A, R = 0xA5A5_1234_5678_9ABC_DEF0, 0x5A5A_FEDC_BA98_7654_3210
"""Secret scalars of key and nonce."""

ZERO_UNREDUCED = (P + 1).to_bytes(32, "little")
"""The identity, its y coordinate not reduced."""
ORDER_4_UNREDUCED = P.to_bytes(32, "little")
"""A point of order 4, likewise."""
ZERO_NEGATIVE = (1 | 1 << 255).to_bytes(32, "little")
"""The identity, its x coordinate a negative zero."""


@dataclass(frozen=True)
class Case:
    """A signature, and which equations it satisfies."""

    name: str
    key: bytes
    message: bytes
    signature: bytes
    plain: bool
    cofactored: bool
    accepted: bool = False


def _point(base: int, torsion: int) -> Point:
    return base * BASE + torsion * TORSION


def _scalar(value: int) -> bytes:
    return value.to_bytes(32, "little")


def searched(
    name: str,
    key: tuple[int, int],
    nonce: tuple[int, int],
    plain: bool,
    encodings: tuple[bytes, bytes] | None = None,
    hashed: tuple[bytes, bytes] | None = None,
    accepted: bool = False,
) -> Case:
    """Return the case over the first message whose equation does (or does not) hold without the cofactor.

    Args:
        key: scalar of the base and of the torsion point; ``nonce`` likewise.
        encodings: encodings of key and nonce, if not the canonical ones.
        hashed: the encodings that enter the hash, if others.
    """
    (a, s), (r, t) = key, nonce
    written = encodings or (_point(a, s).encode(), _point(r, t).encode())
    entered = hashed or written
    for number in count():
        message = b"message %d" % number
        k = challenge(entered[1], entered[0], message)
        if ((t + k * s) % 8 == 0) == plain:
            scalar = (r + k * a) % L
            return Case(
                name=name,
                key=written[0],
                message=message,
                signature=written[1] + _scalar(scalar),
                plain=plain,
                cofactored=True,
                accepted=accepted,
            )
    raise AssertionError("unreachable")


def cases() -> Iterator[Case]:
    yield searched("0 small A and R, S = 0", (0, 1), (0, 3), plain=True)
    yield searched("1 small A", (0, 1), (R, 5), plain=True)
    yield searched("2 small R", (A, 1), (0, 7), plain=True)
    yield searched("3 mixed A and R", (A, 1), (R, 3), plain=True, accepted=True)
    yield searched("4 mixed A and R, cofactored only", (A, 1), (R, 3), plain=False)
    yield searched("5 mixed A, cofactored only", (A, 1), (R, 0), plain=False)
    valid = searched("plain", (A, 0), (R, 0), plain=True, accepted=True)
    yield valid
    for name, multiple in (("6 S = s + L", 1), ("7 S = s + 14 L", 14)):
        scalar = int.from_bytes(valid.signature[32:], "little") + multiple * L
        yield Case(
            name=name,
            key=valid.key,
            message=valid.message,
            signature=valid.signature[:32] + _scalar(scalar),
            plain=True,
            cofactored=True,
        )
    mixed, zero = _point(A, 1).encode(), ZERO.encode()
    unreduced = (mixed, ZERO_UNREDUCED)
    yield searched("8 non-canonical R, hashed so", (A, 1), nonce=(0, 0), plain=True, encodings=unreduced)
    yield searched(
        "9 non-canonical R, hashed reduced",
        (A, 1),
        nonce=(0, 0),
        plain=True,
        encodings=unreduced,
        hashed=(mixed, zero),
    )
    nonce = _point(R, 0).encode()
    unreduced = (ZERO_UNREDUCED, nonce)
    yield searched("10 non-canonical A, hashed so", (0, 0), nonce=(R, 0), plain=True, encodings=unreduced)
    yield searched(
        "11 non-canonical A, hashed reduced",
        (0, 0),
        nonce=(R, 0),
        plain=True,
        encodings=unreduced,
        hashed=(zero, nonce),
    )
    order_4 = decode(ORDER_4_UNREDUCED)
    steps = next(step for step in (2, 6) if _point(0, step) == order_4)
    yield searched(
        "non-canonical R of order 4",
        (A, 1),
        nonce=(0, steps),
        plain=True,
        encodings=(mixed, ORDER_4_UNREDUCED),
    )
    yield searched("A a negative zero", (0, 0), nonce=(R, 0), plain=True, encodings=(ZERO_NEGATIVE, nonce))
    yield searched("R a negative zero", (A, 1), nonce=(0, 0), plain=True, encodings=(mixed, ZERO_NEGATIVE))
