"""Values and bytes that programming languages treat differently, as CBOR and as JSON."""

from typing import Any

from vectors.raw import Raw

INTEGERS = (
    0, 1, 2, 3, 16, 17, 23, 24, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 65_535, 65_536,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
"""Around the bounds of the protocol, of doubles and of machine integers."""

RAW_VALUES = tuple(
    Raw(bytes.fromhex(text))
    for text in (
        "20", "3bffffffffffffffff", "3800", "f4", "f5", "f6", "f7", "f0", "f818", "f8ff",
        "f90000", "f98000", "f93c00", "f97e00", "f97e01", "f97c00", "f9fc00",
        "fa00000000", "fa7fc00000", "fa3f800000", "fb8000000000000000", "fb7ff8000000000000",
        "fb7ff0000000000001",
        "fb3ff0000000000000", "c001", "c249010000000000000000", "d9d9f700", "d818410a",
        "dbffffffffffffffff00",
        "1800", "1817", "1900ff", "1a0000ffff", "1b00000000ffffffff", "5800", "7800", "9800", "b800",

        "5fff", "7fff", "9fff", "bfff", "5f4161ff", "ff", "1c", "1d", "1e", "5c", "fc", "fe",

        "a2000000ff", "a200000000", "a201000000", "a10000", "a1410000", "a1616100", "a1a000", "a1f600",

        "8181818100", "818181818100", "a100a100a100a10000", "9b7fffffffffffffff", "bb8000000000000000",
        "5bffffffffffffffff", "7b7fffffffffffffff", "bb7fffffffffffffff00", "9bffffffffffffffff",
    )
)  # fmt: skip
"""Negative and simple values, floats (0, -0, 1, NaNs, infinities), tags, heads that are too long or of no
definite length, map keys that are none or repeat, depth, and lengths beyond 2^53 and 2^63."""

BROKEN_UTF8 = tuple(
    bytes.fromhex(text)
    for text in (
        "eda080", "edbfbf", "eda080edb080", "c080", "c1bf", "e08080", "f0808080", "f4908080",
        "f7bfbfbf", "fbbfbfbfbf",
        "fe", "ff", "80", "bf", "c3", "e282", "f09f90", "61c3", "c3c3", "e2a228", "f08f8080", "efbfbd80",
    )
)  # fmt: skip

TEXTS = (
    "", "a", "\x00", "\ufeff", "\ufeffa", "a\ufeff", "\ufffd", "\ufffe", "\uffff", "\U0010ffff",
    "\ud7ff", "\ue000",
    "e\u0301", "\u00e9", "\u212b", "\u00c5", "\ufb01", "\u0130", "\u0131", "\u1e9e", "\u03c2", "\u01c5",
    "\U0001f438", "\U0001f468\u200d\U0001f469", "\u202e", "\u2028", "\u0085", "\u00a0", "\u3000",
    "\u180e", "\x7f",
    "\r\n", "\t", "'\"\\", "\U0001d7d8", "\u0661", "\uff11", "7", "<answer>7</answer>",
)  # fmt: skip
"""Byte order marks, forms of normalisation, folding of case, and what some count as spaces or digits."""


def value_of(rng: Any, depth: int = 2) -> Any:
    """Return any value, well formed or not."""
    match rng.randrange(8 if depth else 5):
        case 0:
            return rng.choice(INTEGERS)
        case 1:
            return rng.choice(RAW_VALUES)
        case 2:
            return rng.choice(TEXTS)
        case 3:
            data = rng.choice(BROKEN_UTF8)
            return Raw(bytes((0x60 + len(data),)) + data)
        case 4:
            return rng.randbytes(rng.choice((0, 1, 19, 20, 21, 31, 32, 33, 63, 64, 65)))
        case 5:
            return [value_of(rng, depth - 1) for _ in range(rng.randrange(4))]
        case 6:
            return {key: value_of(rng, depth - 1) for key in sorted(rng.sample(range(26), 2))}
        case _:
            return {key: value_of(rng, 0) for key in rng.sample(INTEGERS, 2)}
