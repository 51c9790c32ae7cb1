"""Ed25519 under the strict rule: signatures alone, and the same edge cases inside messages."""

from collections.abc import Iterator
from hashlib import sha256, sha512
from itertools import count
from typing import Any

from support.ed25519_cases import cases as edge_cases
from support.edwards import BASE, TORSION, L, P, Point, challenge, lift
from vectors.cases_certificate import fields as certificate_fields
from vectors.raw import cbor
from vectors.world import ALICE, PLAIN, Case, Identity, Message, frame, one

from sapo_protocol import ed25519
from sapo_protocol.envelope import Kind, signed_bytes

MESSAGE = b"message"


def signatures() -> list[dict[str, Any]]:
    """Return key, message, signature and whether they belong together."""
    found = [
        _entry(case.name, case.key, case.message, case.signature, case.accepted) for case in edge_cases()
    ]
    found += [_entry(*item) for item in _plain()]
    found += [_entry(*item) for item in _small()]
    found += [_entry(*item) for item in _unreduced()]
    return found


def _entry(name: str, key: bytes, message: bytes, signature: bytes, valid: bool) -> dict[str, Any]:
    texts = {"public_key": key.hex(), "message": message.hex(), "signature": signature.hex()}
    return {"name": name, **texts, "valid": valid}


def _plain() -> Iterator[tuple[str, bytes, bytes, bytes, bool]]:
    for length in (0, 1, 32, 111, 112, 1023):
        seed = sha256(b"seed %d" % length).digest()
        message = (sha512(seed).digest() * 16)[:length]
        key, signature = bytes(ed25519.public_key(seed)), ed25519.sign(seed, message)
        yield f"genuine, {length} bytes", key, message, signature, True
        yield f"another message than {length} bytes", key, message + b"\x00", signature, False
        scalar = int.from_bytes(signature[32:], "little")
        for multiple in range(1, 4):
            larger = (scalar + multiple * L).to_bytes(32, "little")
            yield f"S + {multiple} L, {length} bytes", key, message, signature[:32] + larger, False
        negated = signature[:32] + ((L - scalar) % L).to_bytes(32, "little")
        yield f"-S, {length} bytes", key, message, negated, False


def _small() -> Iterator[tuple[str, bytes, bytes, bytes, bool]]:
    """Yield each of the eight points of small order, as key and as nonce, where the equation holds."""
    genuine = ed25519.public_key(b"\x01" * 32)
    for step in range(8):
        small = (step * TORSION).encode()
        for number in count():
            message = b"message %d" % number
            r = (5 * BASE).encode()
            if challenge(r, small, message) * step % 8 == 0:
                yield f"key {step} of small order", small, message, r + (5).to_bytes(32, "little"), False
                break
        yield f"nonce {step} of small order", bytes(genuine), MESSAGE, small + bytes(32), False


def _unreduced() -> Iterator[tuple[str, bytes, bytes, bytes, bool]]:
    """Yield every y coordinate from p to 2^255 - 1, with both signs."""
    key, signature = bytes(ed25519.public_key(b"\x02" * 32)), ed25519.sign(b"\x02" * 32, MESSAGE)
    for y in range(P, 2**255):
        for odd in (False, True):
            if lift(y - P, odd) is None:
                continue
            encoded = (y | odd << 255).to_bytes(32, "little")
            name = f"y = p + {y - P}, {'odd' if odd else 'even'}"
            yield f"key with {name}", encoded, MESSAGE, signature, False
            yield f"nonce with {name}", key, MESSAGE, encoded + signature[32:], False
    off_curve = next(y for y in count(2) if lift(y, odd=False) is None).to_bytes(32, "little")
    yield "key on no point", off_curve, MESSAGE, signature, False
    yield "nonce on no point", key, MESSAGE, off_curve + signature[32:], False


def cases() -> Iterator[Case]:
    """Yield the edge cases inside rollouts and certificates."""
    payload = cbor(ALICE.fields())
    for name, signature in _crafted(ALICE, payload).items():
        data = frame(payload=payload, signature=signature)
        yield one(f"Ed25519: {name}", None if name == "own nonce" else "R7.1", data)
    yield from _mixed_key()


def _crafted(who: Identity, payload: bytes) -> dict[str, bytes]:
    """Return signatures made with the secret scalar of a genuine key and nonces of our choice."""
    message = signed_bytes(Kind.ROLLOUT, PLAIN.swarm_id, payload)
    digest = bytearray(sha512(who.seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    a, nonce = int.from_bytes(digest, "little"), 0x5A5A_FEDC_BA98

    def signed(r: int, torsion: int, encoding: bytes | None = None, plus: int = 0) -> bytes:
        point = encoding or (r * BASE + torsion * TORSION).encode()
        s = (r + challenge(point, bytes(who.node), message) * a) % L + plus * L
        return point + s.to_bytes(32, "little")

    mixed = {f"nonce of mixed order, torsion {t}": signed(nonce, t) for t in range(1, 8)}
    small = {f"nonce of small order, torsion {t}": signed(0, t) for t in range(8)}
    larger = {f"own nonce, S + {n} L": signed(nonce, 0, plus=n) for n in range(1, 16)}
    unreduced = {"nonce zero, not reduced": signed(0, 0, (P + 1).to_bytes(32, "little"))}
    negative = {"nonce zero, negative": signed(0, 0, (1 | 1 << 255).to_bytes(32, "little"))}
    return {"own nonce": signed(nonce, 0)} | mixed | small | larger | unreduced | negative


def _mixed_key() -> Iterator[Case]:
    """Yield a node whose key has a part of order 8: taken where the equation holds without the cofactor."""
    secret, torsion = 0xA5A5_1234_5678_9ABC, 1
    key = (secret * BASE + torsion * TORSION).encode()
    account = certificate_fields(f0=key)
    for name, plain in (("and the plain equation holds", True), ("and only the cofactored one holds", False)):
        certificate = _sealed_by_mixed(key, secret, _binding(account, key), plain)
        rule = None if plain else "R7.1"
        message = Message(rule, certificate, "certificates")
        yield Case(f"Ed25519: a key of mixed order, {name}", (message,), certificates=())


def _binding(fields: dict[int, Any], key: bytes) -> bytes:
    from sapo_protocol import secp256k1
    from sapo_protocol.eip712 import NodeBinding
    from sapo_protocol.identifiers import NodeId

    digest = NodeBinding(NodeId(key), PLAIN.swarm_id, fields[2], fields[3]).digest(PLAIN.binding_domain)
    return cbor({**fields, 4: secp256k1.sign(ALICE.secret, digest)})


def _sealed_by_mixed(key: bytes, secret: int, payload: bytes, plain: bool) -> bytes:
    message = signed_bytes(Kind.CERTIFICATE, PLAIN.swarm_id, payload)
    for nonce in count(1000):
        point: Point = nonce * BASE
        k = challenge(point.encode(), key, message)
        if (k % 8 == 0) == plain:
            signature = point.encode() + ((nonce + k * secret) % L).to_bytes(32, "little")
            return frame(kind=1, payload=payload, signature=signature)
    raise AssertionError("unreachable")
