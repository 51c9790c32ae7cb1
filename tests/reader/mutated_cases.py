"""Cases of the admission vectors with mutated messages, times and knowledge, of all manifests.

Every choice comes from one seeded generator, so a number names a case. Messages are mutated as values and
signed again, or as bytes.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

from reader.hazards import BROKEN_UTF8, INTEGERS, RAW_VALUES, TEXTS, value_of
from reference import cbor as reference_cbor
from reference.refusal import Refused
from reference.vectors import admission_files, load, unpack
from vectors.raw import Raw, cbor, head, pairs
from vectors.world import ALICE, ALICES_SECOND_KEY, BOB, MALLORY, MANIFESTS, STRANGER, Identity

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, signed_bytes
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest import Manifest

IDENTITIES = (ALICE, BOB, ALICES_SECOND_KEY, MALLORY, STRANGER)
BY_NODE = {bytes(identity.node): identity for identity in IDENTITIES}
TOPICS = ("rollouts", "certificates", "contributions", "equivocations")
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

Fields = dict[int, Any]


@cache
def _cases() -> tuple[dict[str, Any], ...]:
    """Return all cases, each with the certificates that it names."""
    found = []
    for name in admission_files():
        document = load(name)
        for case in document["cases"]:
            genuine = document["certificates"].get(case["manifest"], {})
            certificates = [genuine[who] for who in case["state"]["certificates"]]
            found.append({**case, "certificates": certificates})
    return tuple(found)


@cache
def _messages_of(manifest: str) -> tuple[dict[str, Any], ...]:
    return tuple(message for case in _cases() if case["manifest"] == manifest for message in case["messages"])


def mutated_case(seed: int, number: int) -> dict[str, Any]:
    """Return a case without outcomes: manifest, state, certificates, now_ms and messages."""
    rng = random.Random(f"readers:{seed}:{number}")
    base = rng.choice(_cases())
    manifest = MANIFESTS[base["manifest"]]
    heard = [*base["messages"], *rng.choices(_messages_of(base["manifest"]), k=rng.randrange(4))]
    rng.shuffle(heard)
    state = deepcopy(base["state"])
    if rng.random() < 0.3:
        _change_state(rng, state, manifest)
    messages = [_mutated(rng, message, manifest) for message in heard]
    if rng.random() < 0.3:
        messages += rng.choices(messages, k=2)
    return {
        "manifest": base["manifest"],
        "state": state,
        "certificates": base["certificates"],
        "now_ms": base["now_ms"],
        "messages": messages,
    }


def _change_state(rng: random.Random, state: dict[str, Any], manifest: Manifest) -> None:
    """Change what the chain is supposed to have said."""
    accounts = [identity.account.hex() for identity in IDENTITIES[:4]]
    state["auditors"] = rng.sample(sorted(set(accounts)), rng.randrange(1, 4))
    if manifest.islands is not None and manifest.islands.count is None:
        epochs = sorted(rng.sample(range(1, 6), 2))  # in epoch 0 there is one island
        state["paid"] = [[epoch, rng.choices((0, 1, 2, 3, 4, 5, 9, 2**32), k=3)] for epoch in epochs]
    if manifest.gate is not None and "seen" in state and not state["seen"]:
        epochs = sorted(rng.sample(range(6), 2))
        state["bonds"] = [
            [epoch, {who: str(rng.choice((0, 1, 2**96))) for who in rng.sample(accounts, 2)}]
            for epoch in epochs
        ]
    if "replacements" in state or (manifest.has_chain and rng.random() < 0.5):
        leaving = rng.choice(state["auditors"])
        entering = STRANGER.account.hex()
        state["replacements"] = [[rng.randrange(1, 6), leaving, entering]]


def _mutated(rng: random.Random, message: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Return a message with mutated bytes, or its own, heard at another time or on another topic."""
    data, topic, offset_ms = unpack(message["bytes"]), message["topic"], message["offset_ms"]
    if rng.random() < 0.75 and len(data) < 8192:
        data = rng.choices((_as_value, _as_bytes), (3, 1))[0](rng, data, manifest)
    if rng.random() < 0.2:
        offset_ms = _moment(rng, manifest)
    if rng.random() < 0.05:
        topic = rng.choice(TOPICS)
    if manifest.islands is not None and topic != "contributions" and rng.random() < 0.3:
        island = rng.randrange(4)
        topic = topic.partition("/")[0] + (f"/{island}" if island else "")
    return {"topic": topic, "offset_ms": offset_ms, "bytes": data.hex()}


def _moment(rng: random.Random, manifest: Manifest) -> int:
    """Return a border of some rule, or a millisecond beside it, as milliseconds after the cases' moment.

    That moment is in the middle of epoch 3 in almost all cases.
    """
    length = 1000 * manifest.epoch_seconds
    grace = min(30_000, length // 10)
    epochs = rng.randrange(-4, 18) * length - length // 2
    return epochs + rng.choice((0, 500, -500, grace + 500, grace, 2 * grace)) + rng.choice((-1, 0, 1))


def _as_bytes(rng: random.Random, data: bytes, _: Manifest) -> bytes:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data + rng.randbytes(rng.randrange(1, 3))
        case 2 | 3:
            changed = bytearray(data)
            for _bit in range(rng.choice((1, 1, 2))):
                if changed:
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 4:
            inserted = rng.choice((rng.choice(RAW_VALUES).data, rng.choice(BROKEN_UTF8)))
            return data[:at] + inserted + data[at + rng.randrange(len(inserted) + 1) :]
        case _:
            bomb = head(rng.choice((2, 3, 4, 5)), rng.choice((64, 8192, 131_072, 2**32, 2**53, 2**64 - 1)))
            return data[:at] + bomb + data[at + 1 :]


def _as_value(rng: random.Random, data: bytes, manifest: Manifest) -> bytes:
    """Return the message with something in its payload or envelope replaced; the payload signed again."""
    envelope = _read(data)
    payload = _read(envelope.get(3)) if isinstance(envelope, dict) else None
    if not isinstance(envelope, dict) or not isinstance(payload, dict):
        return _as_bytes(rng, data, manifest)
    kind = envelope.get(1)
    if rng.random() < 0.2:
        return cbor(_edited(rng, envelope, manifest))
    if kind == Kind.EQUIVOCATION and rng.random() < 0.7:
        payload = {key: _inner(rng, one, manifest) for key, one in payload.items()}
        if rng.random() < 0.8 and len(payload) == 2:
            payload = dict(zip(payload, sorted(payload.values(), key=repr), strict=True))
    else:
        payload = _edited(rng, payload, manifest)
    if kind == Kind.CERTIFICATE and isinstance(payload, dict):
        payload = _bound(rng, payload, manifest)
    written = cbor(_respelt(rng, payload) if rng.random() < 0.15 and isinstance(payload, dict) else payload)
    return _signed(rng, envelope, payload, written, manifest)


def _read(data: Any) -> Any:
    if not isinstance(data, bytes):
        return None
    try:
        return reference_cbor.read(data)
    except Refused:
        return None


def _inner(rng: random.Random, message: Any, manifest: Manifest) -> Any:
    """Return a message inside a proof, mutated on its own."""
    if not isinstance(message, bytes) or rng.random() < 0.5:
        return message
    return _as_value(rng, message, manifest)


def _edited(rng: random.Random, value: Any, manifest: Manifest) -> Any:
    """Return a value with one thing in it replaced, dropped or added."""
    if isinstance(value, dict) and value:
        key = rng.choice([*value, rng.randrange(26)])
        fields = dict(value)
        if key in fields and rng.random() < 0.1:
            del fields[key]
        elif key in fields and rng.random() < 0.8:
            fields[key] = _edited(rng, fields[key], manifest)
        else:
            fields[key] = value_of(rng)
        return dict(sorted(fields.items()))
    if isinstance(value, list) and value and rng.random() < 0.8:
        items = list(value)
        at = rng.randrange(len(items))
        match rng.randrange(5):
            case 0:
                items.append(items[at])
            case 1:
                items.reverse()
            case 2:
                del items[at]
            case _:
                items[at] = _edited(rng, items[at], manifest)
        return items
    return _leaf(rng, value)


def _leaf(rng: random.Random, value: Any) -> Any:
    if isinstance(value, int) and rng.random() < 0.9:
        return rng.choice(
            (
                min(value + 1, 2**64 - 1),
                max(0, value - 1),
                *rng.choices(INTEGERS, k=2),
                rng.choice((1, 2, 3, 4)),
            )
        )
    if isinstance(value, bytes) and rng.random() < 0.9:
        return _other_bytes(rng, value)
    return value_of(rng)


def _other_bytes(rng: random.Random, value: bytes) -> Any:
    identity = rng.choice(IDENTITIES)
    match len(value):
        case 32 if rng.random() < 0.5:
            return bytes(identity.node)
        case 20 if rng.random() < 0.5:
            return bytes(identity.account)
        case 64 | 65 if rng.random() < 0.7:
            return _other_signature(rng, value)
    choices: tuple[Callable[[], bytes], ...] = (
        lambda: rng.choice(TEXTS).encode(),
        lambda: rng.choice(BROKEN_UTF8),
        lambda: value + rng.choice(BROKEN_UTF8),
        lambda: rng.choice(TEXTS).encode() + value,
        lambda: value[:-1],
        lambda: value + b"\0",
        lambda: rng.randbytes(len(value)),
        lambda: b"x" * rng.choice((8191, 8192, 8193)),
    )
    return rng.choice(choices)()


def _other_signature(rng: random.Random, signature: bytes) -> bytes:
    """Return another spelling of an Ed25519 or an account's signature."""
    if len(signature) == 65:
        r, s, v = signature[:32], int.from_bytes(signature[32:64], "big"), signature[64]
        choices = [
            r + (ORDER - s % ORDER).to_bytes(32, "big") + bytes((55 - v & 0xFF,)),
            signature[:64] + bytes((rng.choice((0, 1, 26, 27, 28, 29, 255)),)),
            bytes(32) + signature[32:],
            r + bytes(32) + signature[64:],
            ORDER.to_bytes(32, "big") + signature[32:],
            r + ORDER.to_bytes(32, "big") + signature[64:],
            rng.randbytes(64) + signature[64:],
        ]
        return rng.choice(choices)
    point, scalar = signature[:32], int.from_bytes(signature[32:], "little")
    numbers = (scalar + rng.randint(1, 14) * GROUP_ORDER, GROUP_ORDER - scalar, GROUP_ORDER, 0, 2**256 - 1)
    number = rng.choice([number for number in numbers if 0 <= number < 2**256])
    flipped = point[:31] + bytes((point[31] ^ 0x80,))
    small = rng.choice(
        ("01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80", "ee" + "ff" * 30 + "7f")
    )
    return rng.choice(
        (
            point + number.to_bytes(32, "little"),
            flipped + signature[32:],
            bytes.fromhex(small) + signature[32:],
        )
    )


def _bound(rng: random.Random, payload: Fields, manifest: Manifest) -> Fields:
    """Return a certificate's payload, mostly with the account's signature that fits it."""
    named = payload.get(0)
    identity = BY_NODE.get(named) if isinstance(named, bytes) else None
    begin, end = payload.get(2), payload.get(3)
    if identity is None or not isinstance(begin, int) or not isinstance(end, int) or rng.random() < 0.2:
        return payload
    if max(begin, end) >= 2**64:
        return payload
    binding = NodeBinding(NodeId(payload[0]), manifest.swarm_id, begin, end)
    signature = secp256k1.sign(identity.secret, binding.digest(manifest.binding_domain))
    return {**payload, 4: _other_signature(rng, signature) if rng.random() < 0.2 else signature}


def _signed(rng: random.Random, envelope: Fields, payload: Any, written: bytes, manifest: Manifest) -> bytes:
    """Return the envelope with another payload, mostly under a signature that fits it."""
    named = payload.get(0) if isinstance(payload, dict) else None
    identity = (BY_NODE.get(named) if isinstance(named, bytes) else None) or rng.choice(IDENTITIES)
    kind = envelope.get(1)
    fields = {**envelope, 3: written}
    if kind in tuple(Kind) and kind != Kind.EQUIVOCATION and rng.random() < 0.9:
        fields[4] = _signature_of(identity, kind, written, manifest)
    if rng.random() < 0.05 and isinstance(fields.get(4), bytes) and len(fields[4]) == 64:
        fields[4] = _other_signature(rng, fields[4])
    return cbor(_respelt(rng, fields) if rng.random() < 0.05 else fields)


def _signature_of(identity: Identity, kind: int, payload: bytes, manifest: Manifest) -> bytes:
    return ed25519.sign(identity.seed, signed_bytes(Kind(kind), manifest.swarm_id, payload))


def _respelt(rng: random.Random, fields: Fields) -> Raw:
    """Return the same map with a key twice, in another order, or with a head that is too long."""
    items: list[tuple[Any, Any]] = list(fields.items())
    if not items:
        return Raw(b"\xb8\x00")
    at = rng.randrange(len(items))
    key, value = items[at]
    match rng.randrange(5):
        case 0:
            rng.shuffle(items)
        case 1:
            items.insert(at, items[at])
        case 2:
            items[at] = (Raw(head(0, key, rng.choice((1, 2, 4, 8)))), value)
        case 3:
            items[at] = (key, Raw(b"\xc2" + cbor(value)))
        case _:
            return Raw(b"\xbf" + b"".join(cbor(k) + cbor(v) for k, v in items) + b"\xff")
    return pairs(*items)
