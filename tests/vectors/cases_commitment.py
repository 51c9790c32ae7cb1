"""Commitments of a swarm whose audits are by sample: fields, bounds, time, quota, signature, sequences."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import cbor
from vectors.world import (
    ALICE,
    ALICES_SECOND_KEY,
    BOB,
    EPOCH,
    EPOCH_SECONDS,
    GENESIS,
    LATER_KINDS,
    MALLORY,
    MANIFESTS,
    PLAIN,
    STRANGER,
    WRONG_TYPES,
    Announced,
    Case,
    Identity,
    Message,
    frame,
    one,
)

from sapo_protocol.envelope import Kind, seal

SAMPLED, DIVIDED = MANIFESTS["sampled"], MANIFESTS["sampled on islands"]
OVER = EPOCH - 1
END_MS = 1000 * (GENESIS + EPOCH * EPOCH_SECONDS)
GRACE_MS = 100 * EPOCH_SECONDS
NOW = END_MS + GRACE_MS // 2
ROOT = bytes(range(32))
TOPIC = "commitments"
HOME = 2


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield _case("genuine", None)
    yield _case("of slot 31 alone", None, f3=bytes(3) + b"\x80")
    yield _case("of all slots", None, f3=b"\xff" * 4)
    yield from _fields()
    yield from _kinds()
    yield from _time()
    yield from _judgement()
    yield from _sequences()
    yield from _islands()


def commitment(who: Identity = ALICE, manifest: Any = SAMPLED, **changes: Any) -> bytes:
    """Return a commitment with some fields replaced, under a genuine signature."""
    return who.signed(_payload(who, **changes), manifest, Kind.COMMITMENT)


def _payload(who: Identity = ALICE, **changes: Any) -> bytes:
    fields = {0: bytes(who.node), 1: bytes(who.account), 2: OVER, 3: b"\x05\x01", 4: ROOT}
    merged = fields | {int(name[1:]): value for name, value in changes.items()}
    return cbor({key: value for key, value in sorted(merged.items()) if value is not None})


def _case(name: str, rule: str | None, data: bytes | None = None, **options: Any) -> Case:
    changes = {key: options.pop(key) for key in list(options) if key[0] == "f" and key[1:].isdigit()}
    message = commitment(**changes) if data is None else data
    settings = {"manifest": "sampled", "topic": TOPIC, "now_ms": NOW}
    return one(f"a commitment: {name}", rule, message, **(settings | options))


def _fields() -> Iterator[Case]:
    for key in range(5):
        yield _case(f"without key {key}", "R1.7.1", **{f"f{key}": None})
        wrong = "number" if key in (0, 1, 3, 4) else "bytes"
        yield _case(f"key {key} of another type", "R1.7.2", **{f"f{key}": WRONG_TYPES[wrong]})
    yield _case("no map", "R1.7.1", ALICE.signed(cbor([]), SAMPLED, Kind.COMMITMENT))
    yield _case("a short node", "R1.7.2", f0=bytes(31))
    yield _case("a long account", "R1.7.2", f1=bytes(21))
    yield _case("a short root", "R1.7.2", f4=bytes(31))
    yield _case("no slots", "R1.7.3", f3=b"")
    yield _case("8,193 bytes of slots", "R1.7.3", f3=bytes(8192) + b"\x01")
    yield _case("8,192 bytes of slots", "R6.1", f3=bytes(8191) + b"\x01")
    yield _case("a last byte of zero", "R1.7.4", f3=b"\x01\x00")
    yield _case("a last byte of zero and a short root", "R1.7.4", f3=b"\x00", f4=b"")
    for key in (5, 23):
        added: dict[str, Any] = {f"f{key}": 0}
        yield _case(f"with the reserved key {key}", "R1.7.5", **added)
    yield _case("with a reserved key and a short node", "R1.7.5", f0=b"", f5=0)
    yield _case("with key 24", "R1.7.1", f24=0)
    yield _case("two payloads in one", "R1.0.11", ALICE.signed(_payload() * 2, SAMPLED, Kind.COMMITMENT))


def _kinds() -> Iterator[Case]:
    for topic in ("rollouts", "certificates", "contributions", "equivocations"):
        yield _case(f"on the topic of {topic}", "R2.6", topic=topic)
        yield one(
            f"on the topic of {topic}, of a swarm without samples",
            "R2.6",
            commitment(manifest=PLAIN),
            topic=topic,
        )
    yield _case("a rollout in its place", "R2.4", ALICE.rollout(SAMPLED))
    yield _case("a certificate in its place", "R2.4", ALICE.certificate(SAMPLED))
    yield _case("the kind behind it", "R2.6", frame(SAMPLED, kind=LATER_KINDS[1]))
    yield _case("the kind that is none", "R2.2", frame(SAMPLED, kind=0))


def _time() -> Iterator[Case]:
    for name, rule, at in (
        ("half a second before the end", None, END_MS - 500),
        ("a millisecond earlier", "R3.6", END_MS - 501),
        ("just before the deadline", None, END_MS + GRACE_MS + 499),
        ("at the deadline", "R3.7", END_MS + GRACE_MS + 500),
        ("two epochs later", "R3.7", END_MS + 120_000),
    ):
        yield _case(name, rule, now_ms=at)
    yield _case("of the epoch that has begun", "R3.6", f2=EPOCH)
    yield _case("of the last epoch there is", "R3.6", f2=2**64 - 1)


def _judgement() -> Iterator[Case]:
    yield _case("of slot 32", "R6.1", f3=bytes(4) + b"\x01")
    yield _case("of nobody", "R5.1", commitment(STRANGER))
    yield _case("of another's node", "R5.1", commitment(f1=bytes(BOB.account)))
    yield _case("of a key whose certificate ends", "R5.2", offset_ms=86_400_000, f2=OVER + 1440)
    yield _case("forged", "R7.1", frame(SAMPLED, kind=7, payload=_payload()))
    yield _case("signed as a rollout", "R7.1", _signed_as(Kind.ROLLOUT))
    yield _case("forged, of slot 32", "R6.1", frame(SAMPLED, kind=7, payload=_payload(f3=bytes(4) + b"\x01")))
    uncertain = Announced((), EPOCH - 2)
    yield _case("in an epoch whose terms are not certain", "R6.11", terms=uncertain)
    gate = MANIFESTS["sampled behind a bond"]
    bonds = ((OVER, {ALICE.account: 1}),)
    behind = {"manifest": "sampled behind a bond", "bonds": bonds}
    yield _case("with a bond", None, commitment(manifest=gate), **behind)
    yield _case("without a bond", "R5.6", commitment(BOB, gate), **behind)
    yield _case("without a bond and not introduced", "R5.6", commitment(MALLORY, gate), **behind)


def _signed_as(kind: Kind) -> bytes:
    signature = seal(kind, SAMPLED.swarm_id, _payload(), ALICE.seed).signature
    return frame(SAMPLED, kind=7, payload=_payload(), signature=signature)


def _sequences() -> Iterator[Case]:
    def heard(name: str, *steps: tuple[str | None, bytes], **options: Any) -> Case:
        messages = tuple(Message(rule, data, TOPIC) for rule, data in steps)
        settings: dict[str, Any] = {
            "manifest": "sampled",
            "now_ms": NOW,
            "certificates": ("alice", "bob", "alice 1"),
        }
        return Case(f"commitments: {name}", messages, **(settings | options))

    first, second, third = (commitment(f4=bytes(31) + bytes([number])) for number in range(3))
    yield heard("twice the same", (None, first), ("R4.6", first))
    yield heard("two and a third", (None, first), (None, second), ("R4.7", third), ("R4.6", second))
    forged = frame(SAMPLED, kind=7, payload=_payload(f4=bytes(32)))
    yield heard("a forged one takes no place", ("R7.1", forged), (None, first), (None, second))
    yield heard("of two accounts", (None, first), (None, commitment(BOB)))
    other = commitment(ALICES_SECOND_KEY)
    yield heard("of two keys of an account", (None, first), (None, other), ("R4.7", second))


def _islands() -> Iterator[Case]:
    """Alice lives on island 2 in these epochs."""
    for island in range(4):
        ending = f"/{island}" if island else ""
        introduced = Message(None, ALICE.certificate(DIVIDED), f"certificates/{HOME}")
        heard = Message(None if island == HOME else "R6.7", commitment(manifest=DIVIDED), TOPIC + ending)
        messages = (introduced, heard)
        name = f"a commitment: on island {island}"
        yield Case(name, messages, manifest="sampled on islands", certificates=(), now_ms=NOW)
