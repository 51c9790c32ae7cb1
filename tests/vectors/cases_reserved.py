"""Kinds and keys that are reserved for later versions: ignored, and not stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vectors.cases_certificate import fields as certificate_fields
from vectors.cases_contribution import GENUINE, OVER, sealed
from vectors.cases_difficulty import OUTCOMES, RECORD
from vectors.cases_equivocation import ONE, OTHER, paired, proof
from vectors.raw import Raw, cbor
from vectors.world import (
    ALICE,
    BOB,
    CHAINED,
    LADDERS,
    LATER_KINDS,
    MANIFESTS,
    PLAIN,
    YEAR_END,
    Case,
    Message,
    frame,
    frame_fields,
    one,
)

from sapo_protocol.envelope import Kind

VALUES: dict[str, Any] = {
    "a number": 2**64 - 1,
    "bytes": b"\xff",
    "text": "é",
    "an array": [[[1]]],
    "a map": {0: {}, 2**32: []},
}
MALFORMED: dict[str, tuple[str, Any]] = {
    "a float": ("R1.0.6", Raw(b"\xfa\x7f\xc0\x00\x00")),
    "null": ("R1.0.6", Raw(b"\xf6")),
    "a number in too many bytes": ("R1.0.4", Raw(b"\x18\x17")),
    "text that is no UTF-8": ("R1.0.7", Raw(b"\x61\xff")),
    "a map whose keys descend": ("R1.0.10", Raw(b"\xa2\x01\x00\x00\x00")),
    "an array nested too deep": ("R1.0.8", [[[[0]]]]),
    "a string that stops early": ("R1.0.2", Raw(b"\x41")),
}
"""Values that no key may have, reserved or not."""

AUDITORS = (ALICE.account.hex(),)


@dataclass(frozen=True)
class _Shape:
    """An object, the topic that carries it, and the rules about its keys."""

    kind: Kind
    topic: str
    fields: dict[int, Any]
    keys: str
    reserved: str
    first: int

    def sealed(self, changes: dict[int, Any]) -> bytes:
        """Return the object after changes, None leaving a field out, under a genuine signature."""
        merged = self.fields | changes
        content = cbor({key: merged[key] for key in sorted(merged) if merged[key] is not None})
        if self.kind is Kind.EQUIVOCATION:
            return frame(kind=6, payload=content)
        return ALICE.signed(content, PLAIN, self.kind)


_AUTHOR = {0: bytes(ALICE.node), 1: bytes(ALICE.account), 2: OVER}
SHAPES = (
    _Shape(Kind.CERTIFICATE, "certificates", certificate_fields(), "R1.1.1", "R1.1.5", 5),
    _Shape(Kind.ROLLOUT, "rollouts", ALICE.fields(), "R1.2.1", "R1.2.9", 7),
    _Shape(Kind.TALLY, "contributions", _AUTHOR | GENUINE[Kind.TALLY], "R1.3.1", "R1.3.9", 6),
    _Shape(Kind.PROPOSAL, "contributions", _AUTHOR | GENUINE[Kind.PROPOSAL], "R1.4.1", "R1.4.12", 7),
    _Shape(Kind.APPROVAL, "contributions", _AUTHOR | GENUINE[Kind.APPROVAL], "R1.5.1", "R1.5.5", 6),
    _Shape(Kind.EQUIVOCATION, "equivocations", {0: ONE, 1: OTHER}, "R1.6.1", "R1.6.5", 2),
)


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield from _kinds()
    yield from _envelopes()
    for shape in SHAPES:
        yield from _keys(shape)
    yield from _ladders()
    yield from _contents()
    yield from _sequences()


def _case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
    return one(f"reserved: {name}", rule, data, **{"auditors": AUDITORS} | options)


def _kinds() -> Iterator[Case]:
    content = cbor(ALICE.fields())
    for kind in LATER_KINDS:
        yield _case(f"kind {kind}", "R2.6", frame(kind=kind, payload=content))
    first, last = LATER_KINDS[0], LATER_KINDS[-1]
    for topic in ("certificates", "contributions", "equivocations"):
        yield _case(f"kind {last} among {topic}", "R2.6", frame(kind=last, payload=content), topic=topic)
    four = {"manifest": "four islands", "topic": "rollouts/3"}
    yield _case("a kind on an island", "R2.6", frame(MANIFESTS["four islands"], kind=first), **four)
    yield _case("a kind with an empty payload", "R2.6", frame(kind=first))
    yield _case("a kind with noise for a payload", "R2.6", frame(kind=first, payload=b"\xff" * 20))
    yield _case("a kind with 100,000 bytes", "R2.6", frame(kind=first, payload=bytes(100_000)))
    yield _case("a kind too large to be a message", "R0.2", frame(kind=first, payload=bytes(131_072)))
    yield _case(
        "a kind, signed as a rollout", "R2.6", frame(kind=first, payload=content, signature=ONE[-64:])
    )
    yield _case("a kind of another swarm", "R2.3", frame(CHAINED, kind=first, payload=content))
    yield _case("a kind with a short signature", "R1.0.14", frame(kind=first, signature=bytes(63)))
    yield _case("a kind of another version", "R2.1", frame(kind=first, version=2))
    yield _case("a kind whose payload is text", "R1.0.13", frame(kind=first, payload="a"))
    yield _case("a kind and a byte more", "R1.0.11", frame(kind=first) + b"\x00")


def _envelopes() -> Iterator[Case]:
    genuine = frame_fields(payload=cbor(ALICE.fields()), signature=ALICE.rollout()[-64:])

    def case(name: str, rule: str | None, changes: dict[int, Any], **options: Any) -> Case:
        merged = genuine | changes
        fields = {key: merged[key] for key in sorted(merged) if merged[key] is not None}
        return _case(f"an envelope {name}", rule, cbor(fields), **options)

    for key in range(5, 24):
        yield case(f"with key {key}", "R1.0.16", {key: 0})
    for name, value in VALUES.items():
        yield case(f"with {name} behind its keys", "R1.0.16", {5: value})
    yield case("with all reserved keys", "R1.0.16", dict.fromkeys(range(5, 24), 0))
    yield case("with a reserved key and one that is not", "R1.0.12", {5: 0, 24: 0})
    yield case("with a reserved key, another missing", "R1.0.12", {3: None, 5: 0})
    yield case("with a reserved key, the first missing", "R1.0.12", {0: None, 23: 0})
    yield case("with a reserved key, of another version", "R1.0.16", {0: 2, 5: 0})
    yield case("with a reserved key, of another swarm", "R1.0.16", {2: bytes(CHAINED.swarm_id), 5: 0})
    yield case("with a reserved key, of kind 0", "R1.0.16", {1: 0, 5: 0})
    yield case("with a reserved key, of a reserved kind", "R1.0.16", {1: LATER_KINDS[0], 5: 0})
    yield case("with a reserved key, with text for a kind", "R1.0.16", {1: "2", 5: 0})
    yield case("with a reserved key, on another topic", "R1.0.16", {5: 0}, topic="certificates")
    yield case("with a reserved key over noise", "R1.0.16", {3: b"\xff", 5: 0})
    yield case("with a reserved key, 64 values", "R1.0.16", {5: [0] * 51})
    yield case("with a reserved key, 65 values", "R1.0.1", {5: [0] * 52})
    for name, (rule, value) in MALFORMED.items():
        yield case(f"with {name} behind its keys", rule, {23: value})


def _keys(shape: _Shape) -> Iterator[Case]:
    """Yield an object with reserved keys, all else in order or not."""

    def case(name: str, rule: str | None, changes: dict[int, Any]) -> Case:
        return _case(f"{word} {name}", rule, shape.sealed(changes), topic=shape.topic)

    word, last, later = shape.kind.name.lower(), max(shape.fields), range(shape.first, 24)
    for key in later:
        yield case(f"with key {key}", shape.reserved, {key: 0})
    for name, value in VALUES.items():
        yield case(f"with {name} behind its keys", shape.reserved, {shape.first: value})
    for name, (rule, value) in MALFORMED.items():
        yield case(f"with {name} behind its keys", rule, {23: value})
    yield case("with all reserved keys", shape.reserved, dict.fromkeys(later, 0))
    yield case("with a reserved key and one that is not", shape.keys, {shape.first: 0, 24: 0})
    yield case("with a reserved key, the first missing", shape.keys, {0: None, shape.first: 0})
    yield case("with a reserved key, the last missing", shape.keys, {last: None, 23: 0})
    yield case("with a reserved key, the first a text", shape.reserved, {0: "a", 23: 0})
    yield case("with a reserved key, the last a text", shape.reserved, {last: "a", 23: 0})
    data = shape.sealed({23: 0})
    yield _case(
        f"{word} with a reserved key, forged",
        shape.reserved,
        data[:-64] + bytes(63) + b"\x01",
        topic=shape.topic,
    )
    yield _case(f"{word} with a reserved key, on another topic", "R2.4", data, topic=_other(shape.topic))
    yield _case(
        f"{word} with a reserved key, of nobody known",
        shape.reserved,
        data,
        topic=shape.topic,
        certificates=(),
    )


def _other(topic: str) -> str:
    return "certificates" if topic == "rollouts" else "rollouts"


def _ladders() -> Iterator[Case]:
    """Yield keys that only swarms with ladders have: they are reserved nowhere."""

    def case(kind: Kind, name: str, rule: str, manifest: str, changes: dict[int, Any]) -> Case:
        swarm = {"plain": PLAIN, "ladders": LADDERS}[manifest]
        fields = _AUTHOR | GENUINE[kind] | changes
        data = ALICE.signed(cbor({key: fields[key] for key in sorted(fields)}), swarm, kind)
        return _case(f"{kind.name.lower()} {name}", rule, data, topic="contributions", manifest=manifest)

    yield case(Kind.TALLY, "with rows and a reserved key", "R1.3.1", "plain", {5: OUTCOMES, 6: 0})
    yield case(
        Kind.TALLY, "with rows and a reserved key, in ladders", "R1.3.9", "ladders", {5: OUTCOMES, 6: 0}
    )
    yield case(Kind.TALLY, "with a reserved key and no rows, in ladders", "R1.3.1", "ladders", {6: 0})
    yield case(Kind.PROPOSAL, "with rows and a reserved key", "R1.4.1", "plain", {6: RECORD, 7: 0})
    yield case(
        Kind.PROPOSAL, "with rows and a reserved key, in ladders", "R1.4.12", "ladders", {6: RECORD, 7: 0}
    )
    yield case(Kind.PROPOSAL, "with a turn and a reserved key", "R1.4.12", "plain", {5: 1, 7: 0})
    yield case(
        Kind.PROPOSAL, "with a reserved key and no rows, in ladders", "R1.4.1", "ladders", {5: 1, 7: 0}
    )
    yield case(Kind.APPROVAL, "with turn 0 written out and a reserved key", "R1.5.5", "plain", {5: 0, 6: 0})


def _contents() -> Iterator[Case]:
    """Yield proofs of what this version cannot read, as first and as second message."""

    def case(name: str, rule: str, first: bytes, second: bytes) -> Case:
        data = frame(kind=6, payload=cbor({0: first, 1: second}))
        return _case(f"a proof in which {name}", rule, data, topic="equivocations")

    later: dict[str, tuple[str, bytes]] = {
        "of a reserved kind": ("R2.6", frame(kind=LATER_KINDS[0])),
        "in an envelope with a reserved key": ("R1.0.16", cbor(frame_fields(payload=b"") | {5: 0})),
        "a rollout with a reserved key": ("R1.2.9", ALICE.rollout(f7=0)),
    }
    for name, (rule, message) in later.items():
        yield case(f"the first is {name}", rule, message, OTHER)
        yield case(f"the second is {name}", rule, ONE, message)
        yield case(f"both are {name}", rule, message, message)
    noise = ALICE.signed(b"\xff")
    yield case(
        "noise comes before a reserved key", "R1.0.3", noise, later["a rollout with a reserved key"][1]
    )
    yield case(
        "a certificate comes before a reserved kind", "R2.6", ALICE.certificate(), frame(kind=LATER_KINDS[0])
    )


def _sequences() -> Iterator[Case]:
    """Yield attackers who hide something in reserved keys, before and behind a genuine message."""
    rollout, more = ALICE.rollout(), ALICE.rollout(f7=b"hidden")
    yield _heard("a rollout with more, then without", "rollouts", ("R1.2.9", more), (None, rollout))
    yield _heard(
        "a rollout, then with more", "rollouts", (None, rollout), ("R1.2.9", more), ("R4.1", rollout)
    )
    other = ALICE.rollout(f5=[b"9"], f7=b"hidden")
    yield _heard("another content of the slot with more", "rollouts", (None, rollout), ("R1.2.9", other))
    wrapped = cbor(frame_fields(payload=cbor(ALICE.fields()), signature=rollout[-64:]) | {5: b"spam"})
    yield _heard(
        "a stranger adds to an envelope",
        "rollouts",
        ("R1.0.16", wrapped),
        (None, rollout),
        ("R1.0.16", wrapped),
    )
    longer = ALICE.signed(cbor(certificate_fields(not_after=YEAR_END + 1, f5=0)), PLAIN, Kind.CERTIFICATE)
    certificate = ALICE.certificate()
    steps = (("R1.1.5", longer), (None, certificate), ("R1.1.5", longer), ("R4.2", certificate))
    yield _heard("a certificate with more replaces none", "certificates", *steps, certificates=())
    for kind in GENUINE:
        shape = next(each for each in SHAPES if each.kind is kind)
        variants = [shape.sealed({23: number}) for number in range(3)]
        later = [(shape.reserved, data) for data in variants]
        genuine = [(None, sealed(kind)), (None, sealed(kind, f3=_others(kind)))]
        yield _heard(f"{kind.name.lower()}s with more take no place", "contributions", *later, *genuine)
    proved = cbor({0: ONE, 1: OTHER, 2: b"more"})
    more = frame(kind=6, payload=proved)
    yield _heard("a proof with more, then without", "equivocations", ("R1.6.5", more), (None, proof()))
    pair = paired(rollout, ALICE.rollout(f5=[b"9"]))
    yield _heard(
        "a proof against another account after one that is not read",
        "equivocations",
        ("R1.6.5", more),
        (None, pair),
        (None, proof(BOB)),
    )


def _others(kind: Kind) -> Any:
    """Return another value of field 3 of a contribution."""
    return {Kind.TALLY: [], Kind.PROPOSAL: [bytes(32)], Kind.APPROVAL: bytes(31) + b"\x01"}[kind]


def _heard(name: str, topic: str, *steps: tuple[str | None, bytes], **options: Any) -> Case:
    messages = tuple(Message(rule, data, topic, i) for i, (rule, data) in enumerate(steps))
    return Case(f"reserved: {name}", messages, **{"auditors": AUDITORS} | options)
