"""Ed25519 under one strict rule, so that all nodes agree on whether a signature is valid.

Libraries disagree on edge cases (non-canonical encodings, points of small order, cofactors),
and with a signature that only some nodes accept, an attacker could get honest forwarders penalised.
The rule (RFC 8032, 5.1.7, made strict): S below the group order, A and R canonically encoded,
neither A nor R of small order, and the equation checked without multiplying by the cofactor.
libsodium checks the canonical S, the canonical A, the small order of A and R, and recomputes the
encoding of R, which makes a non-canonical R unequal; what it does not check is tested here first.
"""

from typing import Final

from nacl import bindings
from nacl._sodium import ffi, lib

from sapo_protocol.identifiers import NodeId

SIGNATURE_BYTES: Final = 64

_P: Final = 2**255 - 19
_L: Final = 2**252 + 27742317777372353535851937790883648493
_TOP: Final = 0x10
"""A scalar whose highest byte is below it is below 2**252, and so below the group order."""
_Y_MASK: Final = (1 << 255) - 1


def public_key(seed: bytes) -> NodeId:
    """Return the node id of a 32-byte secret seed."""
    return NodeId(bindings.crypto_sign_seed_keypair(seed)[0])


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the 64-byte signature of a message under a secret seed."""
    secret = bindings.crypto_sign_seed_keypair(seed)[1]
    return bindings.crypto_sign(message, secret)[:SIGNATURE_BYTES]


def verify(node: NodeId, message: bytes, signature: bytes) -> bool:
    """Whether the signature is valid under the strict rule."""
    return len(signature) == SIGNATURE_BYTES and verify_signed(node, signature + message)


def verify_signed(node: NodeId, signed: bytes) -> bool:
    """Whether the signature at the head of a message is valid for its rest under the strict rule."""
    if signed[63] >= _TOP and int.from_bytes(signed[32:64], "little") >= _L:
        return False
    if not (_is_plain(signed[:32]) and _is_plain(node)):
        return False
    return is_signature_over(node, signed)


def is_signature_over(node: NodeId, signed: bytes) -> bool:
    """Whether libsodium's own rule accepts the signature at the head of a message.

    PyNaCl's function of this name copies the message twice, and a message may be large. Here libsodium gets a
    null pointer as its output buffer, and copies nothing.
    """
    return bool(lib.crypto_sign_open(ffi.NULL, ffi.NULL, signed, len(signed), node) == 0)


_SMALL_ORDER: Final = frozenset(
    int.from_bytes(bytes.fromhex(y), "little")
    for y in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)
"""The y coordinates of the eight points of order 1, 2, 4 and 8."""

_UNUSUAL_TOPS: Final = frozenset({y >> 248 for y in _SMALL_ORDER} | {_P >> 248})
"""The highest byte, without the sign bit, of every y coordinate that is refused."""


def _is_plain(encoded: bytes) -> bool:
    """Whether a point's y coordinate is reduced modulo p (the sign bit aside) and its order is not small."""
    if encoded[31] & 0x7F not in _UNUSUAL_TOPS:
        return True
    y = int.from_bytes(encoded, "little") & _Y_MASK
    return y < _P and y not in _SMALL_ORDER
