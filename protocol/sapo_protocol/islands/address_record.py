"""Address records: where a node can be reached, signed by its certified key.

A record carries the node's certificate, so it can be checked alone. It names no island: on which islands a
node is follows from its certificate and the beacons, so nobody can claim another one.
A record that is not valid is dropped without a penalty: peers forward records without checking them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sapo_protocol import ed25519
from sapo_protocol.certificate import Certificate, open_certificate, parse_certificate
from sapo_protocol.constants import MAX_UINT64, PROTOCOL_VERSION
from sapo_protocol.decoding import Value, decode
from sapo_protocol.eip712 import Domain
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import NodeId, SwarmId

MAX_RECORD_BYTES: Final = 2048
MAX_RECORD_ADDRESSES: Final = 4
MAX_ADDRESS_CHARACTERS: Final = 300
RECORD_SECONDS: Final = 3600
"""How long a record counts after it was made."""

RECORD_TOLERANCE_SECONDS: Final = 60
"""How far in the future a record may be made: clocks differ."""

MAX_ASKED_ISLANDS: Final = 8
MAX_RECORDS: Final = 24
"""In one answer; 24 records of 2,048 bytes fit into it."""

MAX_RECORDS_BYTES: Final = 64 * 1024

_TAG: Final = f"sapo/{PROTOCOL_VERSION}/address-record".encode() + b"\x00"
_MAX_VALUES: Final = 64
_FIELDS: Final = frozenset({0, 1})
_RESERVED: Final = frozenset(range(2, 24))
"""Keys for fields of later versions: signed like the others, and ignored by versions that do not know
them."""


@dataclass(frozen=True, slots=True)
class AddressRecord:
    """Addresses of a node, with its certificate; both signatures checked if `open_record` returned it.

    Attributes:
        made_seconds: Unix time; of two records of a node the one that was made later counts.
        addresses: full multiaddrs, at most four; not parsed yet.
        message: the bytes on the wire.
    """

    certificate: Certificate
    made_seconds: int
    addresses: tuple[str, ...]
    message: bytes

    def counts_at(self, now_seconds: float) -> bool:
        """Whether the record and its certificate count at a moment."""
        made = self.made_seconds
        if not made - RECORD_TOLERANCE_SECONDS <= now_seconds < made + RECORD_SECONDS:
            return False
        return self.certificate.covers(now_seconds)


@dataclass(frozen=True, slots=True)
class UncheckedRecord:
    """A well-formed record whose signatures were not checked yet."""

    certificate: bytes
    payload: bytes
    signature: bytes
    node: NodeId
    made_seconds: int
    addresses: tuple[str, ...]
    message: bytes


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """A peer's request for records of these islands; it may carry the peer's own record."""

    islands: frozenset[int]
    own: bytes | None


def parse_record(message: bytes, swarm_id: SwarmId) -> UncheckedRecord | None:
    """Return the record in a message, cheaply and with no signature checked; None if it is malformed."""
    if len(message) > MAX_RECORD_BYTES:
        return None
    try:
        parts = decode(message, _MAX_VALUES)
        if not isinstance(parts, tuple) or len(parts) != 3:
            return None
        certificate, payload, signature = parts
        if not (
            isinstance(certificate, bytes) and isinstance(payload, bytes) and isinstance(signature, bytes)
        ):
            return None
        read = _parse_payload(decode(payload, _MAX_VALUES))
        envelope = parse_envelope(certificate, swarm_id)
        node = parse_certificate(open_payload(envelope, Kind.CERTIFICATE)).node
    except RemoteProtocolError:
        return None
    if read is None or len(signature) != ed25519.SIGNATURE_BYTES:
        return None
    made_seconds, addresses = read
    return UncheckedRecord(
        certificate=certificate,
        payload=payload,
        signature=signature,
        node=node,
        made_seconds=made_seconds,
        addresses=addresses,
        message=message,
    )


def open_record(unchecked: UncheckedRecord, swarm_id: SwarmId, domain: Domain) -> AddressRecord | None:
    """Return the record with its three signatures checked, or None if one of them is wrong."""
    signed = _TAG + swarm_id + unchecked.payload
    if not ed25519.verify_signed(unchecked.node, unchecked.signature + signed):
        return None
    try:
        certificate = open_certificate(parse_envelope(unchecked.certificate, swarm_id), domain)
    except RemoteProtocolError:
        return None
    return AddressRecord(certificate, unchecked.made_seconds, unchecked.addresses, unchecked.message)


def issue_record(
    seed: bytes, certificate: bytes, swarm_id: SwarmId, made_seconds: int, addresses: Sequence[str]
) -> bytes:
    """Return a signed record.

    Args:
        seed: of the node key that the certificate names.
        certificate: the message that holds it.

    Raises:
        LocalProtocolError: no record may hold these addresses.
    """
    payload = encode({0: made_seconds, 1: tuple(addresses)})
    signature = ed25519.sign(seed, _TAG + swarm_id + payload)
    message = encode((certificate, payload, signature))
    if parse_record(message, swarm_id) is None:
        raise LocalProtocolError("a record holds one to four addresses of at most 300 characters")
    return message


def to_record_request(islands: Sequence[int], own: bytes | None) -> bytes:
    """Return the request for records of at most eight islands, with the own record if there is one."""
    return encode((tuple(sorted(islands)[:MAX_ASKED_ISLANDS]), *(() if own is None else (own,))))


def parse_record_request(request: bytes) -> RecordRequest | None:
    """Return the parsed request of a peer; None if it is malformed."""
    try:
        items = decode(request, _MAX_VALUES)
    except RemoteProtocolError:
        return None
    if not isinstance(items, tuple) or not 1 <= len(items) <= 2 or not isinstance(items[0], tuple):
        return None
    islands = tuple(item for item in items[0] if isinstance(item, int))
    if len(islands) < len(items[0]) or len(islands) > MAX_ASKED_ISLANDS:
        return None
    if len(items) == 1:
        return RecordRequest(frozenset(islands), None)
    own = items[1]
    return RecordRequest(frozenset(islands), own) if isinstance(own, bytes) else None


def to_records(messages: Sequence[bytes]) -> bytes:
    """Return the answer that holds at most ``MAX_RECORDS`` records."""
    return encode(tuple(messages[:MAX_RECORDS]))


def parse_records(answer: bytes) -> tuple[bytes, ...]:
    """Return the records in an answer, not validated yet; none of an answer that is not well formed."""
    try:
        items = decode(answer, _MAX_VALUES)
    except RemoteProtocolError:
        return ()
    if not isinstance(items, tuple) or len(items) > MAX_RECORDS:
        return ()
    messages = tuple(item for item in items if isinstance(item, bytes))
    return messages if len(messages) == len(items) else ()


def _parse_payload(value: Value) -> tuple[int, tuple[str, ...]] | None:
    if not isinstance(value, dict) or not _FIELDS <= value.keys() <= _FIELDS | _RESERVED:
        return None
    made, listed = value[0], value[1]
    if not isinstance(made, int) or made > MAX_UINT64 or not isinstance(listed, tuple):
        return None
    addresses = tuple(item for item in listed if isinstance(item, str) and _is_address_text(item))
    if len(addresses) != len(listed) or not 1 <= len(addresses) <= MAX_RECORD_ADDRESSES:
        return None
    return made, addresses


def _is_address_text(text: str) -> bool:
    """Whether a text can be a multiaddr: printable ASCII without spaces, not too long."""
    return 1 <= len(text) <= MAX_ADDRESS_CHARACTERS and all("!" <= character <= "~" for character in text)
