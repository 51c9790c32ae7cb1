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
    "nothing": "",
    "23 in two bytes": "1817",
    "23 in three bytes": "190017",
    "255 in three bytes": "1900ff",
    "65,535 in five bytes": "1a0000ffff",
    "2^32 - 1 in nine bytes": "1b00000000ffffffff",
    "a length of 1 in two bytes": "5801ff",
    "a text length of 1 in two bytes": "780161",
    "an array of one in two bytes": "980100",
    "a map of one in two bytes": "b8010000",
    "a reserved length": "1c",
    "an indefinite integer": "1f",
    "an indefinite byte string": "5f4101ff",
    "an indefinite text": "7f6161ff",
    "an indefinite array": "9f01ff",
    "an indefinite map": "bf0101ff",
    "a negative integer": "20",
    "a tag": "c001",
    "a bignum": "c249010000000000000000",
    "false": "f4",
    "null": "f6",
    "undefined": "f7",
    "a half float": "f90000",
    "a double NaN": "fb7ff8000000000001",
    "a break": "ff",
    "map keys that descend": "a2010100ff",
    "map keys 1, 0": "a201000000",
    "a key twice": "a201000100",
    "a byte string for a key": "a1414100",
    "text for a key": "a1616100",
    "an array for a key": "a1800000",
    "a map for a key": "a1a000",
    "a map without its value": "a101",
    "an array without its item": "81",
    "a byte string that stops early": "4201",
    "a head that stops early": "1901",
    "a byte string of 2^64 - 1 bytes": "5bffffffffffffffff",
    "an array of 2^32 - 1 items": "9affffffff",
    "a map of 2^32 - 1 pairs": "baffffffff",
    "a map of 2 pairs over 3 bytes": "a2000001",
    "text that is no UTF-8": "61ff",
    "a lone surrogate": "63eda080",
    "overlong text": "62c080",
    "two values": "0000",
    "five levels of arrays": "818181818100",
    "five levels of maps": "a100a100a100a100a10000",
}


def cases() -> Iterator[Case]:
    """Every case of this file."""
    yield one("the largest message is read", "not_canonical", bytes(131_072))
    yield one("a byte more is not", "oversize", bytes(131_073))
    yield one("an oversized genuine message", "oversize", GENUINE + bytes(131_073 - len(GENUINE)))
    yield one("JSON", "not_canonical", b'{"answer": "7"}')
    yield from _malformed()
    yield from _heads()
    yield from _truncated()
    yield from _counted()
    yield from _fields()
    yield from _versions_and_kinds()


def _malformed() -> Iterator[Case]:
    for name, encoded in MALFORMED.items():
        raw = bytes.fromhex(encoded)
        yield one(f"a message: {name}", "not_canonical", raw)
        yield one(f"a payload: {name}", "not_canonical", ALICE.signed(raw))


def _heads() -> Iterator[Case]:
    """The genuine message with one head longer than it must be."""
    fields = frame_fields(payload=b"")
    for key, value in fields.items():
        number = isinstance(value, int)
        size = value if number else len(value)
        body = b"" if number else value
        for width in (2, 4, 8):
            odd = Raw(head(0 if number else 2, size, width) + body)
            yield one(
                f"field {key} with a head of {width} bytes", "not_canonical", cbor({**fields, key: odd})
            )
    yield one("the frame's map in two bytes", "not_canonical", b"\xb8\x05" + GENUINE[1:])
    yield one("a key in two bytes", "not_canonical", GENUINE[:1] + b"\x18\x00" + GENUINE[2:])


def _truncated() -> Iterator[Case]:
    for length in (1, 2, 3, 4, 5, 6, 7, 8, 39, 40, 41, 42, 43, 80, len(GENUINE) - 65, len(GENUINE) - 1):
        yield one(f"the first {length} bytes", "not_canonical", GENUINE[:length])
    yield one("a zero byte more", "not_canonical", GENUINE + b"\x00")
    yield one("the message twice", "not_canonical", GENUINE * 2)
    yield one("without its first byte", "not_canonical", GENUINE[1:])


def _counted() -> Iterator[Case]:
    yield one("64 values", "schema", cbor([0] * 63))
    yield one("65 values", "out_of_bounds", cbor([0] * 64))
    yield one("65 values, keys included", "out_of_bounds", cbor(dict.fromkeys(range(32), 0)))
    yield one("63 values, keys included", "schema", cbor(dict.fromkeys(range(31), 0)))
    yield one("the 65th value is malformed", "out_of_bounds", cbor([0] * 63 + [Raw(b"\xff")]))
    yield one("the 64th value is malformed", "not_canonical", cbor([0] * 62 + [Raw(b"\xff"), 0]))
    yield one("more values than bytes", "not_canonical", head(4, 9000) + bytes(8999))
    yield one("a payload of 64 values", "schema", ALICE.signed(cbor([0] * 63)))
    yield one("a payload of 65 values", "out_of_bounds", ALICE.signed(cbor([0] * 64)))
    yield one("empty maps to the brim", "out_of_bounds", head(4, 131_067) + b"\xa0" * 131_067)
    yield one("four levels", "schema", bytes.fromhex("8181818100"))
    yield one("four levels of maps in a payload", "schema", ALICE.signed(bytes.fromhex("a100a100a100a10000")))


def _fields() -> Iterator[Case]:
    fields = frame_fields(payload=cbor(ALICE.fields()))
    for key in fields:
        rest = {k: v for k, v in fields.items() if k != key}
        yield one(f"a frame without field {key}", "schema", cbor(rest))
        yield one(f"a frame with field {key} twice", "not_canonical", _doubled(fields, key))
        for name, wrong in WRONG_TYPES.items():
            if isinstance(wrong, type(fields[key])):
                continue
            yield one(f"frame field {key} is a {name}", "schema", cbor({**fields, key: wrong}))
        for name, wrong in FORBIDDEN_TYPES.items():
            yield one(f"frame field {key} is a {name}", "not_canonical", cbor({**fields, key: wrong}))
    for key in (5, 23, 24, 255, 2**32, 2**64 - 1):
        yield one(f"a frame with field {key} more", "schema", cbor({**fields, key: 0}))
    yield one("a frame whose keys descend", "not_canonical", cbor(pairs(*reversed(fields.items()))))
    yield one("a frame in an array", "schema", cbor([fields]))
    yield one("a frame of an empty map", "schema", cbor({}))
    yield one("a frame that is a number", "schema", cbor(0))
    yield one("a frame that is an array of its fields", "schema", cbor(list(fields.values())))
    yield one("a payload that is a number", "schema", ALICE.signed(cbor(0)))
    yield one("a payload that is an array", "schema", ALICE.signed(cbor(list(ALICE.fields().values()))))


def _doubled(fields: dict[int, Any], key: int) -> bytes:
    items = [item for k, v in fields.items() for item in [(k, v)] * (1 + (k == key))]
    return cbor(pairs(*items))


def _versions_and_kinds() -> Iterator[Case]:
    payload = cbor(ALICE.fields())
    for version in (0, 2, 3, 255, 2**64 - 1):
        yield one(f"version {version}", "wrong_version", frame(version=version, payload=payload))
    for kind in (0, 9, 255, 2**32, 2**64 - 1):
        yield one(f"kind {kind}", "wrong_kind", frame(kind=kind, payload=payload))
    for kind in (1, 3, 4, 5):
        yield one(f"a rollout relabelled as kind {kind}", "wrong_kind", frame(kind=kind, payload=payload))
    yield one("a certificate among rollouts", "wrong_kind", ALICE.certificate())
    yield one("a message of another swarm", "wrong_swarm", ALICE.rollout(CHAINED))
    yield one("a swarm of zeros", "wrong_swarm", frame(swarm=bytes(32), payload=payload))
    for size in (0, 31, 33):
        swarm = bytes(PLAIN.swarm_id)[:size].ljust(size, b"\x00")
        yield one(f"a swarm of {size} bytes", "schema", frame(swarm=swarm, payload=payload))
    for size in (0, 1, 63, 65, 128):
        data = frame(payload=payload, signature=bytes(size))
        yield one(f"a signature of {size} bytes", "out_of_bounds", data)
    yield one("an empty payload", "not_canonical", frame(payload=b""))
    yield one("version before kind", "wrong_version", frame(version=2, kind=9))
    yield one("kind before swarm", "wrong_kind", frame(kind=9, swarm=bytes(32)))
    yield one("swarm before signature", "wrong_swarm", frame(swarm=bytes(32), signature=b""))
    yield one("signature before topic", "out_of_bounds", frame(kind=1, signature=b""))
    yield one("topic before payload", "wrong_kind", frame(kind=1, payload=b"\xff"))
