"""Section 9, address records: a record, a request for records and an answer."""

from typing import Any

from reference import cbor, derive, edwards, ethereum, objects
from reference.refusal import Refused, require

DROPPED = "dropped"  # no rule has a number for it: nothing is said of a record to who sent it


def record(data: bytes, manifest: dict[str, Any], swarm: bytes, now_seconds: int) -> dict[str, Any] | None:
    """Return what a record says, or None if it is dropped."""
    try:
        return _record(data, manifest, swarm, now_seconds)
    except Refused:
        return None


def _record(data: bytes, manifest: dict[str, Any], swarm: bytes, now_seconds: int) -> dict[str, Any]:
    require(len(data) <= 2048, DROPPED)
    parts = cbor.read(data, cbor.FEW_VALUES)
    require(isinstance(parts, list) and len(parts) == 3, DROPPED)
    require(all(isinstance(part, bytes) for part in parts), DROPPED)
    envelope, payload, signature = objects.envelope(parts[0], swarm), parts[1], parts[2]
    require(envelope["kind"] == "certificate" and len(signature) == 64, DROPPED)
    certificate = objects.certificate(envelope["payload"])
    reserved = frozenset(range(2, 24))
    fields = objects.closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1}, (DROPPED, DROPPED), reserved)
    made, addresses = objects.number(fields[0], DROPPED), objects.array(fields[1], DROPPED)
    require(1 <= len(addresses) <= 4, DROPPED)
    for address in addresses:
        require(isinstance(address, str) and 1 <= len(address) <= 300, DROPPED)
        require(all(33 <= ord(character) <= 126 for character in address), DROPPED)
    node = certificate["node"]
    require(edwards.verify(node, b"sapo/1/address-record\0" + swarm + payload, signature), DROPPED)
    require(edwards.verify(node, envelope["signed"], envelope["signature"]), DROPPED)
    separator = ethereum.domain(manifest["chain_id"], derive.unhex(manifest["registry"] or "00" * 20))
    begin, end = certificate["not_before"], certificate["not_after"]
    digest = ethereum.node_binding(separator, node, swarm, begin, end)
    require(ethereum.signer(digest, certificate["account_signature"]) == certificate["account"], DROPPED)
    require(begin <= now_seconds < end and made - 60 <= now_seconds < made + 3600, DROPPED)
    return {
        "node": node.hex(),
        "account": certificate["account"].hex(),
        "made": made,
        "addresses": list(addresses),
    }


def request(data: bytes) -> tuple[list[int] | None, bytes | None]:
    """Return the islands that a request asks for, or None if it is dropped, and the asker's record."""
    try:
        items = cbor.read(data, cbor.FEW_VALUES)
        require(isinstance(items, list) and 1 <= len(items) <= 2, DROPPED)
        islands = objects.array(items[0], DROPPED)
        require(len(islands) <= 8 and all(isinstance(island, int) for island in islands), DROPPED)
        return sorted(set(islands)), objects.string(items[1], DROPPED) if len(items) == 2 else None
    except Refused:
        return None, None


def answer(data: bytes) -> list[bytes]:
    """Return the records in an answer."""
    try:
        items = objects.array(cbor.read(data, cbor.FEW_VALUES), DROPPED)
        require(len(items) <= 24, DROPPED)
        return [objects.string(item, DROPPED) for item in items]
    except Refused:
        return []
