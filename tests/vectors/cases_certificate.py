"""Certificates: both signatures, their time, renewal, how many an account may have."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import cbor
from vectors.world import (
    ALICE,
    BOB,
    CHAINED,
    FORBIDDEN_TYPES,
    GENESIS,
    MANIFESTS,
    NOW_MS,
    PLAIN,
    WRONG_TYPES,
    YEAR_END,
    Case,
    Identity,
    Message,
    changed,
    frame,
)

from sapo_protocol import secp256k1
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind
from sapo_protocol.manifest import Manifest

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
MAX_SECONDS = 34_560_000
NOW = NOW_MS // 1000


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield _case("genuine", None, ALICE.certificate())
    yield _case("genuine, on a chain", None, ALICE.certificate(CHAINED), manifest="chained")
    yield from _fields()
    yield from _durations()
    yield from _account_signatures()
    yield from _domains()
    yield from _node_signatures()
    yield from _moments()
    yield from _renewals()
    yield from _crowds()


def _case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
    return Case(f"certificate: {name}", (Message(rule, data, "certificates"),), certificates=(), **options)


def fields(
    who: Identity = ALICE,
    not_before: int = GENESIS,
    not_after: int = YEAR_END,
    manifest: Manifest = PLAIN,
    **changes: Any,
) -> dict[int, Any]:
    """Return the fields of a certificate by key, the account's signature genuine unless it is replaced."""
    within = not_before < 2**64 and not_after < 2**64
    binding = NodeBinding(who.node, manifest.swarm_id, not_before, not_after)
    signature = secp256k1.sign(who.secret, binding.digest(manifest.binding_domain)) if within else bytes(65)
    genuine = {0: bytes(who.node), 1: bytes(who.account), 2: not_before, 3: not_after, 4: signature}
    return changed(genuine, changes)


def _sealed(payload: dict[int, Any], manifest: Manifest = PLAIN) -> bytes:
    return ALICE.signed(cbor(payload), manifest, Kind.CERTIFICATE)


def _fields() -> Iterator[Case]:
    genuine = fields()
    for key, value in genuine.items():
        yield _case(f"without field {key}", "R1.1.1", _sealed(changed(genuine, {f"f{key}": None})))
        for name, wrong in WRONG_TYPES.items():
            if not isinstance(wrong, type(value)):
                yield _case(f"field {key} is a {name}", "R1.1.2", _sealed({**genuine, key: wrong}))
    for name, wrong in FORBIDDEN_TYPES.items():
        yield _case(f"not before is a {name}", "R1.0.6", _sealed({**genuine, 2: wrong}))
    for key in (24, 2**64 - 1):
        yield _case(f"with field {key} more", "R1.1.1", _sealed({**genuine, key: 0}))
    for key, size in ((0, 31), (0, 33), (1, 19), (1, 21)):
        yield _case(f"field {key} of {size} bytes", "R1.1.2", _sealed({**genuine, key: bytes(size)}))
    for size in (0, 64, 66):
        data = _sealed({**genuine, 4: bytes(size)})
        yield _case(f"an account signature of {size} bytes", "R1.1.4", data)
    data = _sealed({**genuine, 3: GENESIS, 4: b""})
    yield _case("reversed and without an account's signature", "R1.1.3", data)
    yield _case("a rollout among certificates", "R2.4", ALICE.rollout())


def _durations() -> Iterator[Case]:
    for length, rule in (
        (1, "R5.5"),
        (0, "R1.1.3"),
        (-1, "R1.1.3"),
        (MAX_SECONDS, None),
        (MAX_SECONDS + 1, "R1.1.3"),
    ):
        yield _case(f"of {length} s", rule, _sealed(fields(ALICE, GENESIS, GENESIS + length)))
    yield _case("from 0 to the end", "R1.1.3", _sealed(fields(ALICE, 0, 2**64 - 1)))
    last = fields(ALICE, 2**64 - 2, 2**64 - 1)
    yield _case("the last second of all", "R5.5", _sealed(last))


def _account_signatures() -> Iterator[Case]:
    genuine = fields()[4]
    r, s, v = genuine[:32], genuine[32:64], genuine[64]
    high = (ORDER - int.from_bytes(s, "big")).to_bytes(32, "big")
    odd = {
        "s in the upper half": r + high + bytes((55 - v,)),
        "s in the upper half, v kept": r + high + bytes((v,)),
        "the other v": r + s + bytes((55 - v,)),
        "v of 0": r + s + b"\x00",
        "v of 1": r + s + b"\x01",
        "v of 26": r + s + b"\x1a",
        "v of 29": r + s + b"\x1d",
        "r of zero": bytes(32) + s + bytes((v,)),
        "s of zero": r + bytes(32) + bytes((v,)),
        "r of the order": ORDER.to_bytes(32, "big") + s + bytes((v,)),
        "s of the order": r + ORDER.to_bytes(32, "big") + bytes((v,)),
        "r of all ones": b"\xff" * 32 + s + bytes((v,)),
        "r on no point": (5).to_bytes(32, "big") + s + bytes((v,)),
        "zeros": bytes(65),
        "another account's": fields(BOB)[4],
    }
    for name, signature in odd.items():
        yield _case(f"account signature: {name}", "R5.4", _sealed(fields(f4=signature)))
    stolen = fields(f1=bytes(BOB.account))
    yield _case("claims a stranger's account", "R5.4", _sealed(stolen))
    longer = fields(f3=YEAR_END + 1)
    yield _case("lasts longer than was signed", "R5.4", _sealed(longer))


def _domains() -> Iterator[Case]:
    """Yield the account signed for another chain, contract or swarm; the node signed for this one."""
    for signed_for, heard_in in (
        ("chained", "plain"),
        ("plain", "chained"),
        ("other chain", "chained"),
        ("other registry", "chained"),
        ("wide", "plain"),
    ):
        signature = fields(manifest=MANIFESTS[signed_for])[4]
        data = _sealed(fields(f4=signature), MANIFESTS[heard_in])
        name = f"account signed in {signed_for!r}, heard in {heard_in!r}"
        yield _case(name, "R5.4", data, manifest=heard_in)
        whole = ALICE.certificate(MANIFESTS[signed_for])
        yield _case(f"of {signed_for!r}, heard in {heard_in!r}", "R2.3", whole, manifest=heard_in)


def _node_signatures() -> Iterator[Case]:
    payload = cbor(fields())
    forged = frame(kind=1, payload=payload)
    yield _case("not signed", "R7.1", forged)
    yield _case("signed by another node", "R7.1", BOB.signed(payload, PLAIN, Kind.CERTIFICATE))
    stolen = cbor(fields(f0=bytes(BOB.node)))
    yield _case("claims a stranger's node", "R7.1", ALICE.signed(stolen, PLAIN, Kind.CERTIFICATE))
    both = frame(kind=1, payload=cbor(fields(f4=bytes(65))))
    yield _case("signed by nobody at all", "R7.1", both)


def _moments() -> Iterator[Case]:
    certificate = ALICE.certificate(PLAIN, NOW, NOW + 10)
    for offset, rule in (
        (-1000, "R5.5"),
        (-1, "R5.5"),
        (0, None),
        (9_999, None),
        (10_000, "R5.5"),
        (10_001, "R5.5"),
    ):
        message = Message(rule, certificate, "certificates", offset)
        yield Case(f"certificate: {offset} ms after its begin", (message,), certificates=())


def _renewals() -> Iterator[Case]:
    def case(name: str, *messages: tuple[str | None, bytes]) -> Case:
        steps = tuple(Message(rule, data, "certificates", i) for i, (rule, data) in enumerate(messages))
        return Case(f"certificate: {name}", steps, certificates=())

    genuine = ALICE.certificate()
    yield case("the same again", (None, genuine), ("R4.2", genuine))
    slightly = ALICE.certificate(PLAIN, GENESIS, YEAR_END + 3599)
    yield case("renewed by less than an hour", (None, genuine), ("R4.2", slightly), ("R4.2", genuine))
    longer = ALICE.certificate(PLAIN, GENESIS, YEAR_END + 3600)
    yield case("renewed", (None, genuine), (None, longer), ("R4.2", genuine))
    shorter = ALICE.certificate(PLAIN, GENESIS, YEAR_END - 1)
    yield case("shortened", (None, genuine), ("R4.2", shorter))
    moved = ALICE.certificate(PLAIN, GENESIS + 1, YEAR_END)
    yield case("with another begin", (None, genuine), ("R4.2", moved))
    later, earlier = ALICE.certificate(PLAIN, NOW + 10), ALICE.certificate(PLAIN, GENESIS, NOW + 10)
    messages = (
        Message(None, later, "certificates", 10_000),
        Message(None, earlier, "certificates", 9_999),
        Message("R5.5", later, "certificates", 9_999),
        Message(None, ALICE.rollout(), offset_ms=9_999),
        Message("R5.2", ALICE.rollout(f3=1), offset_ms=10_000),
        Message(None, later, "certificates", 10_000),
        Message("R4.2", later, "certificates", 10_001),
    )
    yield Case("certificate: one that does not count yet stands in no way", messages, certificates=())
    forged = frame(kind=1, payload=cbor(fields()))
    yield case("a forged copy", ("R7.1", forged), (None, genuine), ("R7.1", forged))


def _crowds() -> Iterator[Case]:
    """Yield an account's fifth node displaces the first; one that renews itself goes to the end."""
    keys = [Identity("alice", key) for key in range(5)]
    heard = [Message(None, key.certificate(), "certificates", i) for i, key in enumerate(keys)]
    then: tuple[Message, ...] = (
        Message("R5.1", keys[0].rollout(), offset_ms=10),
        Message(None, keys[1].rollout(f3=1), offset_ms=11),
        Message(None, keys[4].rollout(f3=4), offset_ms=12),
    )
    yield Case("certificate: five nodes of an account", (*heard, *then), certificates=())
    renewed = Message(None, keys[0].certificate(PLAIN, GENESIS, YEAR_END + 3600), "certificates", 4)
    fifth = Message(None, keys[4].certificate(), "certificates", 5)
    then = (
        Message("R5.1", keys[1].rollout(), offset_ms=10),
        Message(None, keys[0].rollout(f3=1), offset_ms=11),
    )
    yield Case("certificate: renewed before the fifth", (*heard[:4], renewed, fifth, *then), certificates=())
