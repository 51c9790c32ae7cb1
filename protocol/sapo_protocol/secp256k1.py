"""Signatures of EVM accounts: 65 bytes r, s, v over a 32-byte digest, low s only (EIP-2)."""

from typing import Final

import coincurve
from eth_hash.auto import keccak

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest

SIGNATURE_BYTES: Final = 65

_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""The larger s of the two that verify is refused, here as in the contracts: one signature, one encoding."""


def account_of(secret: bytes) -> Account:
    """Return the account of a 32-byte secret key."""
    return _account(coincurve.PrivateKey(secret).public_key)


def sign(secret: bytes, digest: Digest) -> bytes:
    """Return the 65-byte signature of a digest, v being 27 or 28."""
    if len(secret) != 32:
        raise LocalProtocolError("an account's secret key has 32 bytes")
    signature = coincurve.PrivateKey(secret).sign_recoverable(digest, hasher=None)
    return signature[:64] + bytes((27 + signature[64],))


def recover(digest: Digest, signature: bytes) -> Account | None:
    """Return the account that signed a digest, or None if the signature is not a valid low-s one."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in (27, 28):
        return None
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        return None
    compact = signature[:64] + bytes((signature[64] - 27,))
    try:
        return _account(coincurve.PublicKey.from_signature_and_message(compact, digest, hasher=None))
    except ValueError:  # r or s out of range, or no point with that r
        return None


def _account(key: coincurve.PublicKey) -> Account:
    return Account(keccak(key.format(compressed=False)[1:])[-20:])
