"""Signed transactions, read from their bytes: legacy, access-list (EIP-2930) and fee-market (EIP-1559)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import rlp
from eth_hash.auto import keccak
from rlp.exceptions import RLPException

from sapo_protocol import secp256k1
from sapo_protocol.identifiers import Digest

LEGACY, ACCESS_LIST, FEE_MARKET = 0, 1, 2

_FIELDS: Final = {LEGACY: 9, ACCESS_LIST: 11, FEE_MARKET: 12}
"""Items of the list in each type of transaction."""

_KNOWN_TYPES: Final = frozenset({3, 4})
"""Blobs and delegations: transactions elsewhere, but of no use on this chain."""


class MalformedTransaction(ValueError):
    """The bytes are no signed transaction."""


class UnsupportedTransaction(ValueError):
    """A transaction of a type that this chain does not take."""


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """One transaction with its sender, recovered from the signature.

    Attributes:
        chain_id: none for the oldest kind, which counts on every chain.
        to: the address that is called; empty to create a contract.
        tip_wei: most that a unit of gas may pay to the block's producer.
        max_fee_wei: most that a unit of gas may cost; for the older types the price itself, as the tip.
        v: the last part of the signature as it is written: with the chain id in legacy transactions.
    """

    raw: bytes
    hash: bytes
    type_id: int
    chain_id: int | None
    nonce: int
    tip_wei: int
    max_fee_wei: int
    gas: int
    to: bytes
    value: int
    data: bytes
    access_list: tuple[tuple[bytes, tuple[bytes, ...]], ...]
    v: int
    y_parity: int
    r: int
    s: int
    sender: bytes

    def price_paid(self, base_fee_wei: int) -> int:
        """Return the wei per unit of gas in a block with this base fee (EIP-1559)."""
        return min(self.max_fee_wei, base_fee_wei + self.tip_wei)


def decode(raw: bytes) -> SignedTransaction:
    """Read a signed transaction.

    Raises:
        MalformedTransaction: the bytes are none, or the signature does not verify.
        UnsupportedTransaction: blobs or delegations.
    """
    if not raw:
        raise MalformedTransaction("no bytes")
    type_id = LEGACY if raw[0] >= 0xC0 else raw[0]
    if type_id in _KNOWN_TYPES:
        raise UnsupportedTransaction(f"transactions of type {type_id} are not mined here")
    if type_id not in _FIELDS or (type_id == LEGACY and raw[0] < 0xC0):
        raise MalformedTransaction(f"there is no type {type_id}")
    try:
        items = rlp.decode(raw if type_id == LEGACY else raw[1:])
    except RLPException as error:
        raise MalformedTransaction(str(error)) from error
    if not isinstance(items, list) or len(items) != _FIELDS[type_id]:
        raise MalformedTransaction("not the list of this type's fields")
    return _parse(raw, type_id, items)


def _parse(raw: bytes, type_id: int, items: Sequence[Any]) -> SignedTransaction:
    rest = list(items)
    v, r, s = (_integer(item) for item in rest[-3:])
    chain_id, y_parity = _legacy_parity(v) if type_id == LEGACY else (_integer(rest.pop(0), 8), v)
    nonce, tip = _integer(rest[0], 8), _integer(rest[1])
    if type_id == FEE_MARKET:
        rest.pop(1)
    return SignedTransaction(
        raw=raw,
        hash=keccak(raw),
        type_id=type_id,
        chain_id=chain_id,
        nonce=nonce,
        tip_wei=tip,
        max_fee_wei=_integer(rest[1]),
        gas=_integer(rest[2], 8),
        to=_address(rest[3]),
        value=_integer(rest[4]),
        data=_bytes(rest[5]),
        access_list=() if type_id == LEGACY else _access_list(rest[6]),
        v=v,
        y_parity=y_parity,
        r=r,
        s=s,
        sender=_sender(_signed_digest(type_id, items, chain_id), y_parity, r, s),
    )


def _legacy_parity(v: int) -> tuple[int | None, int]:
    """Return the chain id (EIP-155) and the parity in the last part of a legacy signature."""
    if v in (27, 28):
        return None, v - 27
    if v < 35:
        raise MalformedTransaction("the signature names no parity")
    return (v - 35) // 2, (v - 35) % 2


def _signed_digest(type_id: int, items: Sequence[Any], chain_id: int | None) -> Digest:
    unsigned = list(items[:-3])
    if type_id == LEGACY and chain_id is not None:
        unsigned += [rlp.sedes.big_endian_int.serialize(chain_id), b"", b""]
    prefix = b"" if type_id == LEGACY else bytes((type_id,))
    return Digest(keccak(prefix + rlp.encode(unsigned)))


def _sender(digest: Digest, y_parity: int, r: int, s: int) -> bytes:
    if y_parity not in (0, 1):
        raise MalformedTransaction("the signature names no parity")
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes((27 + y_parity,))
    account = secp256k1.recover(digest, signature)
    if account is None:
        raise MalformedTransaction("the signature does not verify")
    return bytes(account)


def _bytes(item: Any, sizes: Sequence[int] | None = None) -> bytes:
    if not isinstance(item, bytes) or (sizes is not None and len(item) not in sizes):
        raise MalformedTransaction("a field has the wrong form")
    return item


def _integer(item: Any, size: int = 32) -> int:
    value = _bytes(item, range(size + 1))
    if value[:1] == b"\x00":
        raise MalformedTransaction("a number begins with zero")
    return int.from_bytes(value, "big")


def _address(item: Any) -> bytes:
    return _bytes(item, (0, 20))


def _access_list(item: Any) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    if not isinstance(item, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in item):
        raise MalformedTransaction("the access list is none")
    return tuple((_bytes(address, (20,)), _keys(keys)) for address, keys in item)


def _keys(item: Any) -> tuple[bytes, ...]:
    if not isinstance(item, list):
        raise MalformedTransaction("the access list is none")
    return tuple(_bytes(key, (32,)) for key in item)
