"""Peer ids: the libp2p name of an Ed25519 node key, without importing libp2p.

A peer id is the base58 text of an identity multihash (0x00, length) over the protobuf of the public
key: field 1 = 1 (Ed25519), field 2 = 32 key bytes. Source: libp2p specs, `peer-ids/peer-ids.md`.
"""

from __future__ import annotations

from typing import Final

_PREFIX: Final = bytes.fromhex("002408011220")
_KEY_BYTES: Final = 32
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_MAX_TEXT: Final = 64  # an Ed25519 peer id has 52 characters; longer text is refused before the division


def peer_id_from_key(node_key: bytes) -> str:
    """Return the peer id of a 32-byte Ed25519 public key."""
    if len(node_key) != _KEY_BYTES:
        raise ValueError(f"an Ed25519 public key has {_KEY_BYTES} bytes, not {len(node_key)}")
    return _base58_encode(_PREFIX + node_key)


def key_from_peer_id(peer_id: str) -> bytes | None:
    """Return the 32-byte Ed25519 public key inside a peer id; None for another key type or text."""
    decoded = _base58_decode(peer_id)
    if decoded is None or not decoded.startswith(_PREFIX) or len(decoded) != len(_PREFIX) + _KEY_BYTES:
        return None
    return decoded[len(_PREFIX) :]


def _base58_encode(data: bytes) -> str:
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _ALPHABET[digit] + digits
    zeros = len(data) - len(data.lstrip(b"\x00"))
    return "1" * zeros + digits


def _base58_decode(text: str) -> bytes | None:
    if not text or len(text) > _MAX_TEXT or not set(text) <= set(_ALPHABET):
        return None
    number = 0
    for character in text:
        number = number * 58 + _ALPHABET.index(character)
    zeros = len(text) - len(text.lstrip("1"))
    return b"\x00" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
