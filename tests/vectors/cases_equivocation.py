"""Proofs of equivocation: the frame, the two messages in it, their place, time, signatures."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from vectors.raw import cbor
from vectors.world import (
    ALICE,
    ALICES_SECOND_KEY,
    BOB,
    CHAINED,
    EPOCH,
    EPOCH_SECONDS,
    GENESIS,
    NOW_MS,
    PLAIN,
    STRANGER,
    WRONG_TYPES,
    Case,
    Identity,
    Message,
    frame,
    one,
)

from sapo_protocol.envelope import Kind, signed_bytes
from sapo_protocol.manifest import Manifest

SECOND = [b"9"]


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield _case("genuine", None, proof())
    yield _case("genuine, on a chain", None, proof(manifest=CHAINED), manifest="chained")
    yield from _frames()
    yield from _contents()
    yield from _pairs()
    yield from _judgement()
    yield from _moments()
    yield from _sequences()
    yield from _places()


def proof(who: Identity = ALICE, manifest: Manifest = PLAIN, **changes: Any) -> bytes:
    """Return a genuine proof against an author, both rollouts with some fields replaced."""
    second = changes | {"f5": [*changes.get("f5", ())[:-1], b"9"]}
    return paired(who.rollout(manifest, **changes), who.rollout(manifest, **second), manifest)


def paired(one_: bytes, other: bytes, manifest: Manifest = PLAIN) -> bytes:
    """Return two messages in the order of their content ids, as a proof."""
    return _raw(sorted((one_, other), key=lambda message: _content_id(message, manifest)), manifest)


def _content_id(message: bytes, manifest: Manifest) -> bytes:
    """Return a rollout's content id: 41 bytes, the payload with its head, 67 bytes for the signature."""
    width = {0x58: 2, 0x59: 3, 0x5A: 5}[message[41]]
    return sha256(signed_bytes(Kind.ROLLOUT, manifest.swarm_id, message[41 + width : -67])).digest()


def _raw(messages: Any, manifest: Manifest = PLAIN, **frame_changes: Any) -> bytes:
    payload = cbor(dict(enumerate(messages)))
    return frame(manifest, **{"kind": 6, "payload": payload} | frame_changes)


def _case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
    return one(f"equivocation: {name}", rule, data, topic="equivocations", **options)


ONE, OTHER = sorted((ALICE.rollout(), ALICE.rollout(f5=SECOND)), key=lambda m: _content_id(m, PLAIN))


def _frames() -> Iterator[Case]:
    yield _case("one message alone", "R1.6.1", _raw([ONE]))
    yield _case("three messages", "R1.6.5", _raw([ONE, OTHER, ONE]))
    yield _case("no messages", "R1.6.1", _raw([]))
    yield _case("an array", "R1.6.1", frame(kind=6, payload=cbor([ONE, OTHER])))
    for name, wrong in WRONG_TYPES.items():
        if name != "bytes":
            yield _case(f"the first is a {name}", "R1.6.2", _raw([wrong, OTHER]))
            yield _case(f"the second is a {name}", "R1.6.2", _raw([ONE, wrong]))
    yield _case("noise before a number", "R1.6.2", _raw([b"\xff", 1]))
    yield _case("an empty payload", "R1.0.2", frame(kind=6))
    yield _case("65 values", "R1.0.1", frame(kind=6, payload=cbor([0] * 64)))
    yield _case("signed by the account's node", "R7.2", _raw([ONE, OTHER], signature=ONE[-64:]))
    genuine = ALICE.signed(cbor({0: ONE, 1: OTHER}), PLAIN, Kind.EQUIVOCATION)
    yield _case("signed as a proof", "R7.2", genuine)
    yield _case("signed, in the future", "R7.2", _raw([ONE, OTHER], signature=ONE[-64:]), offset_ms=-60_000)
    yield _case("of another swarm", "R2.3", _raw([ONE, OTHER], CHAINED))
    yield _case("a byte too many", "R1.0.11", proof() + b"\x00")


def _contents() -> Iterator[Case]:
    """Yield something else than a rollout in order, as first and as second message."""
    payload = cbor(ALICE.fields())
    faults = {
        "nothing": ("R1.0.2", b""),
        "noise": ("R1.0.3", b"\xff"),
        "a rollout with a byte more": ("R1.0.11", OTHER + b"\x00"),
        "a frame without a signature": ("R1.0.12", cbor({0: 1, 1: 2, 2: bytes(PLAIN.swarm_id), 3: payload})),
        "a frame with text for its kind": ("R1.0.13", frame(kind="2", payload=payload)),
        "a short signature": ("R1.0.14", frame(payload=payload, signature=bytes(63))),
        "another version": ("R2.1", frame(version=2, payload=payload)),
        "an unknown kind": ("R2.2", frame(kind=24, payload=payload)),
        "another swarm's": ("R2.3", ALICE.rollout(CHAINED)),
        "a certificate": ("R2.5", ALICE.certificate()),
        "a proof": ("R2.5", frame(kind=6)),
        "a rollout that is no CBOR": ("R1.0.3", ALICE.signed(b"\xff")),
        "a rollout without a slot": ("R1.2.1", ALICE.rollout(f3=None)),
        "a rollout with a short node": ("R1.2.2", ALICE.rollout(f0=bytes(31))),
        "a rollout of slot 2^32": ("R1.2.3", ALICE.rollout(f3=2**32)),
        "a rollout of family 256": ("R1.2.4", ALICE.rollout(f4=256)),
        "a rollout of 17 completions": ("R1.2.5", ALICE.rollout(f5=[b"7"] * 17)),
        "a rollout with a long completion": ("R1.2.6", ALICE.rollout(f5=[bytes(8193)])),
        "a rollout that is no UTF-8": ("R1.2.8", ALICE.rollout(f5=[b"\xff"])),
    }
    for name, (rule, message) in faults.items():
        yield _case(f"the first is {name}", rule, _raw([message, OTHER]))
        yield _case(f"the second is {name}", rule, _raw([ONE, message]))
    stranger, broken = ALICE.certificate(), ALICE.signed(b"\xff")
    yield _case("noise behind a certificate", "R1.0.3", _raw([stranger, b"\xff"]))
    yield _case("a certificate behind a broken payload", "R1.0.3", _raw([broken, stranger]))
    yield _case("a broken payload behind a certificate", "R2.5", _raw([stranger, broken]))


def _pairs() -> Iterator[Case]:
    yield _case("the wrong way round", "R1.6.3", _raw([OTHER, ONE]))
    yield _case("one content twice", "R1.6.3", _raw([ONE, ONE]))
    resigned = ONE[:-64] + OTHER[-64:]
    yield _case("one content under two signatures", "R1.6.3", _raw([ONE, resigned]))
    for name, message in {
        "slots": ALICE.rollout(f3=1),
        "epochs": ALICE.rollout(f2=EPOCH - 1),
        "accounts": BOB.rollout(),
    }.items():
        yield _case(f"of two {name}", "R1.6.4", paired(ONE, message))
    apart = sorted((ONE, BOB.rollout()), key=lambda m: _content_id(m, PLAIN), reverse=True)
    yield _case("of two accounts, the wrong way round", "R1.6.3", _raw(apart))
    yield _case("of two families", None, paired(ONE, ALICE.rollout(f4=1)))
    yield _case("with and without a tag", None, paired(ONE, ALICE.rollout(f6=bytes(32))))
    keys = ("alice", "alice 1")
    yield _case("of an account's two keys", None, paired(ONE, ALICES_SECOND_KEY.rollout()), certificates=keys)
    yield _case("of a key unheard of", "R5.1", paired(ONE, ALICES_SECOND_KEY.rollout()))
    yield _case("of a family that the suite lacks", None, proof(f4=255))
    yield _case("of more completions than the manifest allows", None, proof(f5=[b"7"] * 16))
    yield _case("of two large groups", None, proof(f5=[b"a" * 8192] * 7))


def _judgement() -> Iterator[Case]:
    yield _case("against a stranger", "R5.1", proof(STRANGER))
    yield _case("where nobody is known", "R5.1", proof(), certificates=())
    yield _case("against another account", None, proof(BOB))
    yield _case("of the last slot", None, proof(f3=31))
    yield _case("of a slot beyond", "R6.1", proof(f3=32))
    yield _case("against a stranger, of a slot beyond", "R5.1", proof(STRANGER, f3=32))
    forged = [ONE[:-64] + bytes(64), OTHER[:-64] + bytes(64)]
    yield _case("the first forged", "R7.3", _raw([forged[0], OTHER]))
    yield _case("the second forged", "R7.3", _raw([ONE, forged[1]]))
    yield _case("both forged", "R7.3", _raw(forged))
    framed = BOB.signed(cbor(ALICE.fields(f5=SECOND)))
    yield _case("signed by somebody else", "R7.3", paired(ALICE.rollout(), framed))
    beyond = paired(ALICE.rollout(f3=32)[:-64] + bytes(64), ALICE.rollout(f3=32, f5=SECOND))
    yield _case("a slot beyond, and forged", "R6.1", beyond)


def _moments() -> Iterator[Case]:
    start = 1000 * (GENESIS + EPOCH * EPOCH_SECONDS) - NOW_MS
    end = start + 13_000 * EPOCH_SECONDS
    for offset, rule in (
        (start - 501, "R3.1"),
        (start - 500, None),
        (start, None),
        (start + 3000 * EPOCH_SECONDS, None),
        (end - 1, None),
        (end, "R3.4"),
        (end + 500, "R3.4"),
    ):
        yield _case(f"heard {offset} ms from now", rule, proof(), offset_ms=offset)
    yield _case("of epoch 0", None, proof(f2=0))
    yield _case("of the last epoch", "R3.1", proof(f2=2**64 - 1))
    yield _case("of the future, against a stranger", "R3.1", proof(STRANGER, f2=EPOCH + 1))
    soon = ALICE.certificate(PLAIN, GENESIS, GENESIS + 240)
    messages = (
        Message(None, soon, "certificates"),
        Message("R5.2", proof(), "equivocations", 30_000),
    )
    yield Case("equivocation: when the certificate is over", messages, certificates=())


def _sequences() -> Iterator[Case]:
    def case(name: str, *messages: tuple[str | None, bytes]) -> Case:
        steps = tuple(Message(rule, data, "equivocations", i) for i, (rule, data) in enumerate(messages))
        return Case(f"equivocation: {name}", steps)

    genuine = proof()
    forged = _raw([ONE, OTHER[:-64] + bytes(64)])
    yield case("the same again", (None, genuine), ("R4.4", genuine))
    yield case("another slot of the epoch", (None, genuine), ("R4.4", proof(f3=1)))
    yield case("another epoch", (None, genuine), (None, proof(f2=EPOCH - 1)))
    yield case("another account", (None, genuine), (None, proof(BOB)))
    yield case("a forged one shadows nothing", ("R7.3", forged), (None, genuine), ("R4.4", forged))
    rollouts = (Message(None, ONE), Message("R6.4", OTHER, offset_ms=1))
    told = Message(None, genuine, "equivocations", 2)
    yield Case("equivocation: both contents heard, then the proof", (*rollouts, told))
    after = (told, Message(None, ONE, offset_ms=3), Message("R6.4", OTHER, offset_ms=4))
    yield Case("equivocation: the proof, then both contents", after)


def _places() -> Iterator[Case]:
    for topic in ("rollouts", "certificates"):
        yield one(f"an equivocation among {topic}", "R2.4", proof(), topic=topic)
    for name, data in {"rollout": ONE, "certificate": ALICE.certificate()}.items():
        yield _case(f"a {name} among equivocations", "R2.4", data)
    for number in (0, 24, 25, 2**64 - 1):
        yield _case(f"kind {number}", "R2.2", frame(kind=number))
