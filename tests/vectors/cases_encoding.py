"""Stages 0 to 2: size, encoding, the envelope's fields."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import Raw, cbor, head, pairs
from vectors.world import (
    ALICE,
    CHAINED,
    FORBIDDEN_TYPES,
    PLAIN,
    WRONG_TYPES,
    Case,
    frame,
    frame_fields,
    one,
)

GENUINE = ALICE.rollout()

MALFORMED = {
    "nothing": ("R1.0.2", ""),
    "23 in two bytes": ("R1.0.4", "1817"),
    "23 in three bytes": ("R1.0.4", "190017"),
    "255 in three bytes": ("R1.0.4", "1900ff"),
    "65,535 in five bytes": ("R1.0.4", "1a0000ffff"),
    "2^32 - 1 in nine bytes": ("R1.0.4", "1b00000000ffffffff"),
    "a length of 1 in two bytes": ("R1.0.4", "5801ff"),
    "a text length of 1 in two bytes": ("R1.0.4", "780161"),
    "an array of one in two bytes": ("R1.0.4", "980100"),
    "a map of one in two bytes": ("R1.0.4", "b8010000"),
    "a reserved length": ("R1.0.3", "1c"),
    "an indefinite integer": ("R1.0.3", "1f"),
    "an indefinite byte string": ("R1.0.3", "5f4101ff"),
    "an indefinite text": ("R1.0.3", "7f6161ff"),
    "an indefinite array": ("R1.0.3", "9f01ff"),
    "an indefinite map": ("R1.0.3", "bf0101ff"),
    "a negative integer": ("R1.0.6", "20"),
    "a tag": ("R1.0.6", "c001"),
    "a bignum": ("R1.0.6", "c249010000000000000000"),
    "false": ("R1.0.6", "f4"),
    "null": ("R1.0.6", "f6"),
    "undefined": ("R1.0.6", "f7"),
    "a half float": ("R1.0.4", "f90000"),
    "a double NaN": ("R1.0.6", "fb7ff8000000000001"),
    "a break": ("R1.0.3", "ff"),
    "map keys that descend": ("R1.0.10", "a2010100ff"),
    "map keys 1, 0": ("R1.0.10", "a201000000"),
    "a key twice": ("R1.0.10", "a201000100"),
    "a byte string for a key": ("R1.0.5", "a1414100"),
    "text for a key": ("R1.0.5", "a1616100"),
    "an array for a key": ("R1.0.5", "a1800000"),
    "a map for a key": ("R1.0.5", "a1a000"),
    "a map without its value": ("R1.0.9", "a101"),
    "an array without its item": ("R1.0.9", "81"),
    "a byte string that stops early": ("R1.0.2", "4201"),
    "a head that stops early": ("R1.0.2", "1901"),
    "a byte string of 2^64 - 1 bytes": ("R1.0.2", "5bffffffffffffffff"),
    "an array of 2^32 - 1 items": ("R1.0.9", "9affffffff"),
    "a map of 2^32 - 1 pairs": ("R1.0.9", "baffffffff"),
    "a map of 2 pairs over 3 bytes": ("R1.0.9", "a2000001"),
    "text that is no UTF-8": ("R1.0.7", "61ff"),
    "a lone surrogate": ("R1.0.7", "63eda080"),
    "overlong text": ("R1.0.7", "62c080"),
    "two values": ("R1.0.11", "0000"),
    "five levels of arrays": ("R1.0.8", "818181818100"),
    "five levels of maps": ("R1.0.8", "a100a100a100a100a10000"),
}


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield one("the largest message is read", "R1.0.11", bytes(131_072))
    yield one("a byte more is not", "R0.2", bytes(131_073))
    yield one("an oversized genuine message", "R0.2", GENUINE + bytes(131_073 - len(GENUINE)))
    yield one("JSON", "R1.0.2", b'{"answer": "7"}')
    yield from _malformed()
    yield from _heads()
    yield from _truncated()
    yield from _counted()
    yield from _fields()
    yield from _versions_and_kinds()


def _malformed() -> Iterator[Case]:
    for name, (rule, encoded) in MALFORMED.items():
        raw = bytes.fromhex(encoded)
        yield one(f"a message: {name}", rule, raw)
        yield one(f"a payload: {name}", rule, ALICE.signed(raw))


def _heads() -> Iterator[Case]:
    """Yield the genuine message with one head longer than it must be."""
    fields = frame_fields(payload=b"")
    for key, value in fields.items():
        number = isinstance(value, int)
        size = value if number else len(value)
        body = b"" if number else value
        for width in (2, 4, 8):
            odd = Raw(head(0 if number else 2, size, width) + body)
            yield one(f"field {key} with a head of {width} bytes", "R1.0.4", cbor({**fields, key: odd}))
    yield one("the frame's map in two bytes", "R1.0.4", b"\xb8\x05" + GENUINE[1:])
    yield one("a key in two bytes", "R1.0.4", GENUINE[:1] + b"\x18\x00" + GENUINE[2:])


def _truncated() -> Iterator[Case]:
    for length in (1, 2, 3, 4, 5, 6, 7, 8, 39, 40, 41, 42, 43, 80, len(GENUINE) - 65, len(GENUINE) - 1):
        rule = "R1.0.9" if length < 11 else "R1.0.2"  # ten bytes behind the head are too few for five pairs
        yield one(f"the first {length} bytes", rule, GENUINE[:length])
    yield one("a zero byte more", "R1.0.11", GENUINE + b"\x00")
    yield one("the message twice", "R1.0.11", GENUINE * 2)
    yield one("without its first byte", "R1.0.11", GENUINE[1:])


def _counted() -> Iterator[Case]:
    yield one("64 values", "R1.0.12", cbor([0] * 63))
    yield one("65 values", "R1.0.1", cbor([0] * 64))
    yield one("65 values, keys included", "R1.0.1", cbor(dict.fromkeys(range(32), 0)))
    yield one("63 values, keys included", "R1.0.12", cbor(dict.fromkeys(range(31), 0)))
    yield one("the 65th value is malformed", "R1.0.1", cbor([0] * 63 + [Raw(b"\xff")]))
    yield one("the 64th value is malformed", "R1.0.3", cbor([0] * 62 + [Raw(b"\xff"), 0]))
    yield one("more values than bytes", "R1.0.9", head(4, 9000) + bytes(8999))
    yield one("a payload of 64 values", "R1.2.1", ALICE.signed(cbor([0] * 63)))
    yield one("a payload of 65 values", "R1.0.1", ALICE.signed(cbor([0] * 64)))
    yield one("empty maps to the brim", "R1.0.1", head(4, 131_067) + b"\xa0" * 131_067)
    yield one("four levels", "R1.0.12", bytes.fromhex("8181818100"))
    yield one("four levels of maps in a payload", "R1.2.1", ALICE.signed(bytes.fromhex("a100a100a100a10000")))


def _fields() -> Iterator[Case]:
    fields = frame_fields(payload=cbor(ALICE.fields()))
    for key in fields:
        rest = {k: v for k, v in fields.items() if k != key}
        yield one(f"a frame without field {key}", "R1.0.12", cbor(rest))
        yield one(f"a frame with field {key} twice", "R1.0.10", _doubled(fields, key))
        for name, wrong in WRONG_TYPES.items():
            if isinstance(wrong, type(fields[key])):
                continue
            yield one(f"frame field {key} is a {name}", "R1.0.13", cbor({**fields, key: wrong}))
        for name, wrong in FORBIDDEN_TYPES.items():
            yield one(f"frame field {key} is a {name}", "R1.0.6", cbor({**fields, key: wrong}))
    for key in (24, 255, 2**32, 2**64 - 1):
        yield one(f"a frame with field {key} more", "R1.0.12", cbor({**fields, key: 0}))
    yield one("a frame whose keys descend", "R1.0.10", cbor(pairs(*reversed(fields.items()))))
    yield one("a frame in an array", "R1.0.12", cbor([fields]))
    yield one("a frame of an empty map", "R1.0.12", cbor({}))
    yield one("a frame that is a number", "R1.0.12", cbor(0))
    yield one("a frame that is an array of its fields", "R1.0.12", cbor(list(fields.values())))
    yield one("a payload that is a number", "R1.2.1", ALICE.signed(cbor(0)))
    yield one("a payload that is an array", "R1.2.1", ALICE.signed(cbor(list(ALICE.fields().values()))))


def _doubled(fields: dict[int, Any], key: int) -> bytes:
    items = [item for k, v in fields.items() for item in [(k, v)] * (1 + (k == key))]
    return cbor(pairs(*items))


def _versions_and_kinds() -> Iterator[Case]:
    payload = cbor(ALICE.fields())
    for version in (0, 2, 3, 255, 2**64 - 1):
        yield one(f"version {version}", "R2.1", frame(version=version, payload=payload))
    for kind in (0, 24, 25, 255, 2**32, 2**64 - 1):
        yield one(f"kind {kind}", "R2.2", frame(kind=kind, payload=payload))
    for kind in (1, 3, 4, 5, 6):
        yield one(f"a rollout relabelled as kind {kind}", "R2.4", frame(kind=kind, payload=payload))
    yield one("a certificate among rollouts", "R2.4", ALICE.certificate())
    yield one("a message of another swarm", "R2.3", ALICE.rollout(CHAINED))
    yield one("a swarm of zeros", "R2.3", frame(swarm=bytes(32), payload=payload))
    for size in (0, 31, 33):
        swarm = bytes(PLAIN.swarm_id)[:size].ljust(size, b"\x00")
        yield one(f"a swarm of {size} bytes", "R1.0.13", frame(swarm=swarm, payload=payload))
    for size in (0, 1, 63, 65, 128):
        data = frame(payload=payload, signature=bytes(size))
        yield one(f"a signature of {size} bytes", "R1.0.14", data)
    yield one("an empty payload", "R1.0.2", frame(payload=b""))
    yield one("version before kind", "R2.1", frame(version=2, kind=24))
    yield one("kind before swarm", "R2.2", frame(kind=24, swarm=bytes(32)))
    yield one("swarm before signature", "R2.3", frame(swarm=bytes(32), signature=b""))
    yield one("signature before topic", "R1.0.14", frame(kind=1, signature=b""))
    yield one("topic before payload", "R2.4", frame(kind=1, payload=b"\xff"))
