"""Stages 1 and 3 to 7 of a rollout: fields, bounds, time, certificates, slots, signatures."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import Raw, cbor, pairs
from vectors.world import (
    ALICE,
    ALICES_SECOND_KEY,
    BOB,
    CHAINED,
    EPOCH,
    EPOCH_SECONDS,
    FORBIDDEN_TYPES,
    GENESIS,
    MALLORY,
    MANIFESTS,
    NOW_MS,
    PLAIN,
    STRANGER,
    WIDE,
    WRONG_TYPES,
    Case,
    Message,
    frame,
    one,
)

from sapo_protocol import ed25519
from sapo_protocol.envelope import Kind, signed_bytes

GENUINE = ALICE.rollout()
LONGEST = b"a" * 8192

INVALID_UTF8 = {
    "a lone continuation byte": "80",
    "a byte that never occurs": "ff",
    "c0": "c080",
    "an overlong slash": "c0af",
    "an overlong letter": "c1a1",
    "an overlong U+07FF": "e09fbf",
    "an overlong U+FFFF": "f08fbfbf",
    "U+D800": "eda080",
    "U+DFFF": "edbfbf",
    "a pair of surrogates": "eda0bdedb8b8",
    "beyond U+10FFFF": "f4908080",
    "five bytes": "f888808080",
    "a sequence cut at 1 of 2": "c3",
    "a sequence cut at 2 of 3": "e282",
    "a sequence cut at 3 of 4": "f09f90",
    "a sequence broken by a letter": "e28261",
    "Latin-1": "e9",
    "UTF-16": "fffe6100",
}
VALID_UTF8 = {
    "nothing at all": "",
    "a NUL": "00",
    "U+0080": "c280",
    "U+0800": "e0a080",
    "U+D7FF": "ed9fbf",
    "U+E000": "ee8080",
    "U+FFFF": "efbfbf",
    "U+10FFFF": "f48fbfbf",
    "a byte order mark": "efbbbf",
    "a right-to-left override": "e280ae",
}


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield one("genuine", None, GENUINE)
    yield one("genuine, with a policy tag", None, ALICE.rollout(f6=bytes(32)))
    yield one("genuine, on a chain", None, ALICE.rollout(CHAINED), manifest="chained")
    yield from _fields()
    yield from _numbers()
    yield from _completions()
    yield from _time()
    yield from _far_times()
    yield from _identity()
    yield from _state()
    yield from _sequences()
    yield from _flips()


def _fields() -> Iterator[Case]:
    genuine = ALICE.fields(f6=bytes(32))
    for key, value in genuine.items():
        if key != 6:
            yield one(f"a rollout without field {key}", "R1.2.1", ALICE.rollout(PLAIN, **{f"f{key}": None}))
        for name, wrong in WRONG_TYPES.items():
            if isinstance(wrong, type(value)):
                continue
            yield one(f"rollout field {key} is a {name}", "R1.2.2", _with(key, wrong))
        for name, wrong in FORBIDDEN_TYPES.items():
            yield one(f"rollout field {key} is a {name}", "R1.0.6", _with(key, wrong))
    for key in (24, 25, 2**64 - 1):
        yield one(f"a rollout with field {key} more", "R1.2.1", ALICE.rollout(PLAIN, **{f"f{key}": 0}))
    for key, size in ((0, 32), (1, 20), (6, 32)):
        for wrong in (0, size - 1, size + 1):
            yield one(f"rollout field {key} of {wrong} bytes", "R1.2.2", _with(key, bytes(wrong)))
    swapped = pairs(*sorted(genuine.items(), reverse=True))
    yield one("a rollout whose keys descend", "R1.0.10", ALICE.signed(cbor(swapped)))
    doubled = pairs(*genuine.items(), (6, bytes(32)))
    yield one("a rollout with a field twice", "R1.0.10", ALICE.signed(cbor(doubled)))
    yield one("a rollout with a byte more", "R1.0.11", ALICE.signed(cbor(genuine) + b"\x00"))
    yield one("node before account", "R1.2.2", ALICE.rollout(f0=b"", f3=2**32))
    yield one("slot before family", "R1.2.3", ALICE.rollout(f3=2**32, f4=b""))
    yield one("family before completions", "R1.2.2", ALICE.rollout(f4=b"", f5=[]))


def _with(key: int, value: Any) -> bytes:
    return ALICE.signed(cbor({**ALICE.fields(f6=bytes(32)), key: value}))


def _numbers() -> Iterator[Case]:
    for slot, rule in (
        (1, None),
        (23, None),
        (24, None),
        (31, None),
        (32, "R6.1"),
        (255, "R6.1"),
        (2**32 - 1, "R6.1"),
        (2**32, "R1.2.3"),
        (2**64 - 1, "R1.2.3"),
    ):
        yield one(f"slot {slot}", rule, ALICE.rollout(f3=slot))
    for slot in (32, 255, 256, 65_535, 65_536, 2**32 - 1):
        yield one(f"slot {slot} of many", None, ALICE.rollout(WIDE, f3=slot), manifest="wide")
    yield one("slot 2^32 of many", "R1.2.3", ALICE.rollout(WIDE, f3=2**32), manifest="wide")
    for family, rule in (
        (1, None),
        (2, None),
        (3, "R6.3"),
        (255, "R6.3"),
        (256, "R1.2.4"),
        (2**64 - 1, "R1.2.4"),
    ):
        yield one(f"family {family}", rule, ALICE.rollout(f4=family))
    for slot in (0, 31):
        padded = Raw(b"\x18" + bytes((slot,))) if slot < 24 else Raw(b"\x19\x00" + bytes((slot,)))
        yield one(f"slot {slot} in a byte too many", "R1.0.4", ALICE.rollout(f3=padded))


def _completions() -> Iterator[Case]:
    for count, rule in (
        (0, "R1.2.5"),
        (1, None),
        (8, None),
        (9, "R6.2"),
        (16, "R6.2"),
    ):
        yield one(f"{count} completions", rule, ALICE.rollout(f5=[b"7"] * count))
    for count, rule in (
        (9, None),
        (16, None),
        (17, "R1.2.5"),
        (24, "R1.2.5"),
        (300, "R1.0.1"),
    ):
        data = ALICE.rollout(WIDE, f5=[b"7"] * count)
        yield one(f"{count} completions of sixteen", rule, data, manifest="wide")
    for size, rule in (
        (0, None),
        (23, None),
        (24, None),
        (255, None),
        (256, None),
        (8191, None),
        (8192, None),
        (8193, "R1.2.6"),
        (70_000, "R1.2.6"),
    ):
        yield one(f"a completion of {size} bytes", rule, ALICE.rollout(f5=[b"a" * size]))
    yield one("65,536 bytes", None, ALICE.rollout(f5=[LONGEST] * 8))
    data = ALICE.rollout(WIDE, f5=[LONGEST] * 8 + [b"a"])
    yield one("65,537 bytes", "R1.2.7", data, manifest="wide")
    even = ALICE.rollout(WIDE, f5=[b"a" * 4096] * 16)
    yield one("65,536 bytes in sixteen", None, even, manifest="wide")
    for name, encoded in INVALID_UTF8.items():
        yield one(f"UTF-8: {name}", "R1.2.8", ALICE.rollout(f5=[b"7", bytes.fromhex(encoded)]))
    for name, encoded in VALID_UTF8.items():
        yield one(f"UTF-8: {name}", None, ALICE.rollout(f5=[b"7", bytes.fromhex(encoded)]))
    for name, wrong in WRONG_TYPES.items():
        if name != "bytes":
            yield one(f"a completion that is a {name}", "R1.2.2", ALICE.rollout(f5=[b"7", wrong]))
    yield one("a long completion before a number", "R1.2.6", ALICE.rollout(f5=[LONGEST + b"a", 1]))
    yield one("a number before a long completion", "R1.2.2", ALICE.rollout(f5=[1, LONGEST + b"a"]))
    yield one("broken UTF-8 before a long one", "R1.2.6", ALICE.rollout(f5=[b"\xff", LONGEST + b"a"]))
    total = ALICE.rollout(WIDE, f5=[b"\xff", *[LONGEST] * 8])
    yield one("broken UTF-8 in too large a group", "R1.2.7", total, manifest="wide")


def _time() -> Iterator[Case]:
    start = 1000 * (GENESIS + EPOCH * EPOCH_SECONDS) - NOW_MS
    end = start + 2000 * EPOCH_SECONDS
    for offset, rule in (
        (start - 60_000, "R3.1"),
        (start - 501, "R3.1"),
        (start - 500, None),
        (start - 499, None),
        (start, None),
        (end - 1, None),
        (end, None),
        (end + 499, None),
        (end + 500, "R3.2"),
        (end + 501, "R3.2"),
        (end + 86_000_000, "R3.2"),
    ):
        yield one(f"heard {offset} ms from the middle", rule, GENUINE, offset_ms=offset)
    for epoch, rule in (
        (0, "R3.2"),
        (1, "R3.2"),
        (2, None),
        (3, None),
        (4, "R3.1"),
        (2**32, "R3.1"),
        (2**64 - 1, "R3.1"),
    ):
        yield one(f"epoch {epoch}", rule, ALICE.rollout(f2=epoch))


def _far_times() -> Iterator[Case]:
    first = ALICE.rollout(f2=0)
    for offset, rule in ((-501, "R3.1"), (-500, "R5.2"), (0, None)):
        name = f"epoch 0, {offset} ms from genesis"
        yield one(name, rule, first, now_ms=1000 * GENESIS, offset_ms=offset, seen=())
    long = MANIFESTS["long epochs"]
    data = ALICE.rollout(long, f2=7)
    for hours, rule in ((6, "R3.1"), (7, None), (8, None), (9, "R3.2")):
        now = hours * 3_600_000 + 1000
        yield one(f"hour {hours} of hourly epochs", rule, data, manifest="long epochs", now_ms=now)
    soon = ALICE.certificate(PLAIN, GENESIS, GENESIS + 240)
    for offset, rule in (
        (239_999, None),
        (240_000, "R5.2"),
        (240_001, "R5.2"),
    ):
        messages = (Message(None, soon, "certificates"), Message(rule, GENUINE, offset_ms=offset - 210_000))
        yield Case(f"{offset} ms into a certificate of 240 s", messages, certificates=())


def _identity() -> Iterator[Case]:
    yield one("nobody's", "R5.1", STRANGER.rollout())
    yield one("nobody knows anybody", "R5.1", GENUINE, certificates=())
    yield one("in a stranger's account", "R5.1", ALICE.rollout(f1=bytes(BOB.account)))
    yield one("of a stranger's node", "R5.1", BOB.rollout(f0=bytes(MALLORY.node)))
    second = ALICES_SECOND_KEY.rollout()
    yield one("of an account's second key", None, second, certificates=("alice", "alice 1"))
    yield one("of a second key unheard of", "R5.1", second)
    payload = cbor(ALICE.fields())
    for name, signature in _signatures(payload).items():
        yield one(f"signature: {name}", "R7.1", frame(payload=payload, signature=signature))
    forged = frame(payload=payload)
    yield one("a family unknown and a signature forged", "R6.3", _forged(f4=3))
    yield one("a slot and a family beyond", "R6.1", _forged(f3=32, f4=3))
    yield one("a group too large, a family beyond", "R6.2", _forged(f5=[b"7"] * 9, f4=3))
    yield one("no certificate and a slot beyond", "R5.1", STRANGER.rollout(f3=32))
    yield one("an old epoch and no certificate", "R3.2", STRANGER.rollout(f2=0))
    yield one("forged", "R7.1", forged)


def _forged(**changes: Any) -> bytes:
    return frame(payload=cbor(ALICE.fields(**changes)))


def _signatures(payload: bytes) -> dict[str, bytes]:
    genuine = ed25519.sign(ALICE.seed, signed_bytes(Kind.ROLLOUT, PLAIN.swarm_id, payload))

    def signed(data: bytes) -> bytes:
        return ed25519.sign(ALICE.seed, data)

    swarm = bytes(PLAIN.swarm_id)
    return {
        "another's": ed25519.sign(MALLORY.seed, signed_bytes(Kind.ROLLOUT, PLAIN.swarm_id, payload)),
        "of another swarm": signed(signed_bytes(Kind.ROLLOUT, CHAINED.swarm_id, payload)),
        "of another kind": signed(signed_bytes(Kind.CERTIFICATE, PLAIN.swarm_id, payload)),
        "of the payload alone": signed(payload),
        "without a tag": signed(swarm + payload),
        "without the zero byte": signed(b"sapo/1/rollout" + swarm + payload),
        "of another version": signed(b"sapo/2/rollout\x00" + swarm + payload),
        "in capitals": signed(b"sapo/1/ROLLOUT\x00" + swarm + payload),
        "zeros": bytes(64),
        "ones": b"\xff" * 64,
        "halves swapped": genuine[32:] + genuine[:32],
        "R alone": genuine[:32] + bytes(32),
        "S alone": bytes(32) + genuine[32:],
    }


def _state() -> Iterator[Case]:
    forged = frame(payload=cbor(ALICE.fields()))
    second = ALICE.rollout(f5=[b"9"])
    yield one("the same again", "R4.1", GENUINE, seen=(GENUINE,))
    yield one("the same under a wrong signature", "R4.1", forged, seen=(GENUINE,))
    yield one("a second content", "R6.4", second, seen=(GENUINE,))
    yield one("a second content of another family", "R6.4", ALICE.rollout(f4=1), seen=(GENUINE,))
    yield one("a second content with a tag", "R6.4", ALICE.rollout(f6=bytes(32)), seen=(GENUINE,))
    keys = ("alice", "alice 1")
    other_key = ALICES_SECOND_KEY.rollout()
    yield one("a second key's content", "R6.4", other_key, seen=(GENUINE,), certificates=keys)
    framed = frame(payload=cbor(ALICE.fields(f5=[b"9"])))
    yield one("a second content that is forged", "R7.1", framed, seen=(GENUINE,))
    yield one("another slot", None, ALICE.rollout(f3=1), seen=(GENUINE,))
    yield one("the slot of another epoch", None, ALICE.rollout(f2=2), seen=(GENUINE,))
    yield one("the slot of another account", None, BOB.rollout(), seen=(GENUINE,))


def _sequences() -> Iterator[Case]:
    forged = frame(payload=cbor(ALICE.fields()))
    second = ALICE.rollout(f5=[b"9"])

    def case(name: str, *messages: tuple[str | None, bytes]) -> Case:
        steps = (Message(rule, data, offset_ms=i) for i, (rule, data) in enumerate(messages))
        return Case(name, tuple(steps))

    yield case("a forged copy shadows nothing", ("R7.1", forged), (None, GENUINE), ("R4.1", forged))
    yield case("the second content is refused", (None, GENUINE), ("R6.4", second), ("R4.1", GENUINE))
    yield case("the other way round", (None, second), ("R6.4", GENUINE), ("R4.1", second))
    yield case("three times", (None, GENUINE), ("R4.1", GENUINE), ("R4.1", GENUINE))
    yield case("refused twice", (None, GENUINE), ("R6.4", second), ("R6.4", second))
    stranger = STRANGER.rollout()
    messages = (
        Message("R5.1", stranger),
        Message(None, STRANGER.certificate(), "certificates", 1),
        Message(None, stranger, offset_ms=2),
        Message("R4.1", stranger, offset_ms=3),
    )
    yield Case("introduced later", messages)
    early = (Message("R3.1", GENUINE, offset_ms=-60_000), Message(None, GENUINE))
    yield Case("early, then in time", early)
    late = (Message(None, GENUINE), Message("R3.2", GENUINE, offset_ms=120_000))
    yield Case("known, then too late", late)
    everyone = tuple(Message(None, ALICE.rollout(f3=slot), offset_ms=slot) for slot in range(32))
    yield Case("every slot of an epoch", (*everyone, Message("R6.1", ALICE.rollout(f3=32))))


def _flips() -> Iterator[Case]:
    """Yield one bit flipped, at places where the outcome is clear from the layout."""
    payload = cbor(ALICE.fields())
    at = GENUINE.index(payload)
    places = {
        "version": (2, "R2.1"),
        "kind": (4, "R2.4"),
        "swarm": (8, "R2.3"),
        "end of the swarm": (39, "R2.3"),
        "node": (at + 4, "R5.1"),
        "account": (at + 38, "R5.1"),
        "R": (len(GENUINE) - 64, "R7.1"),
        "end of R": (len(GENUINE) - 33, "R7.1"),
        "S": (len(GENUINE) - 32, "R7.1"),
        "end of S": (len(GENUINE) - 1, "R7.1"),
        "completion": (at + len(payload) - 1, "R7.1"),
    }
    for name, (place, rule) in places.items():
        for bit in (0, 1, 2, 5):
            if name in ("version", "kind") and bit == 5:
                continue  # a bit of the head: another type
            mask = 1 << bit
            data = GENUINE[:place] + bytes((GENUINE[place] ^ mask,)) + GENUINE[place + 1 :]
            is_unknown = name == "kind" and bit == 1  # kind 0
            yield one(f"a flipped bit: {name}, {bit}", "R2.2" if is_unknown else rule, data)
    high = GENUINE[: at + len(payload) - 1] + b"\xb8" + GENUINE[at + len(payload) :]
    yield one("a flipped bit: completion, 7", "R1.2.8", high)
