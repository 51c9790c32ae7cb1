"""Narrow types for everything that is a fixed number of bytes."""

import re
from typing import ClassVar, Final, Self

from eth_hash.auto import keccak

from sapo_protocol.errors import LocalProtocolError

_HEXADECIMAL: Final = re.compile("(?:0x)?((?:[0-9a-fA-F]{2})*)")
"""Stricter than ``bytes.fromhex``, which takes white space between the bytes: other languages do not."""


class FixedBytes(bytes):
    """Bytes of a fixed length, which the constructor checks."""

    SIZE: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.SIZE:
            raise LocalProtocolError(f"{cls.__name__} takes {cls.SIZE} bytes, not {len(value)}")
        return bytes.__new__(cls, value)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Return the value that a person wrote in hexadecimal, with or without ``0x``."""
        if (found := _HEXADECIMAL.fullmatch(text)) is None:
            raise LocalProtocolError(f"{cls.__name__} is written in hexadecimal, not {text!r}")
        return cls(bytes.fromhex(found[1]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __str__(self) -> str:
        return self.hex()


class NodeId(FixedBytes):
    """An Ed25519 public key: the signer of a message, from which the libp2p peer id is derived."""

    SIZE = 32


class Account(FixedBytes):
    """An EVM address: the recipient of payments, and the unit of every quota and cap."""

    SIZE = 20

    def __str__(self) -> str:
        """Return the form that wallets show and check: capitals by the hash of the digits (EIP-55)."""
        digits = self.hex()
        marks = keccak(digits.encode()).hex()
        return "0x" + "".join(
            digit.upper() if mark >= "8" else digit for digit, mark in zip(digits, marks, strict=False)
        )


class Digest(FixedBytes):
    """A SHA-256 digest."""

    SIZE = 32


class SwarmId(Digest):
    """The digest of a manifest."""


class ContentId(Digest):
    """The digest of the bytes that an envelope's signature covers."""
