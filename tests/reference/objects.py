"""Sections 3 and 4: envelope and objects as plain dictionaries, read in the order of section 6.1."""

from hashlib import sha256
from itertools import pairwise
from typing import Any

from reference import cbor
from reference.refusal import Refused, require

KINDS = {1: "certificate", 2: "rollout", 3: "tally", 4: "proposal", 5: "approval", 6: "equivocation"}
LARGEST_NUMBER = 2**64 - 1


def envelope(data: bytes, swarm: bytes) -> dict[str, Any]:
    """The envelope in a message of a swarm, with its signed bytes and content id."""
    require(len(data) <= 131_072, "oversize")
    fields = closed(cbor.read(data, cbor.FEW_VALUES), {0, 1, 2, 3, 4})
    require(number(fields[0]) == 1, "wrong_version")
    require(number(fields[1]) in KINDS, "wrong_kind")
    require(fixed(fields[2], 32) == swarm, "wrong_swarm")
    payload = string(fields[3], 0, 131_072)
    signature = string(fields[4], 64, 64)
    kind = KINDS[fields[1]]
    signed = b"sapo/1/" + kind.encode() + b"\0" + swarm + payload
    content_id = sha256(signed).digest()
    return {
        "kind": kind,
        "payload": payload,
        "signature": signature,
        "signed": signed,
        "content_id": content_id,
    }


def certificate(payload: bytes) -> dict[str, Any]:
    """The fields of a certificate."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4})
    read = {
        "node": fixed(fields[0], 32),
        "account": fixed(fields[1], 20),
        "not_before": number(fields[2]),
        "not_after": number(fields[3]),
    }
    require(1 <= read["not_after"] - read["not_before"] <= 34_560_000, "out_of_bounds")
    return read | {"account_signature": string(fields[4], 65, 65)}


def rollout(payload: bytes) -> dict[str, Any]:
    """The fields of a rollout."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4, 5}, {6})
    read = {
        "node": fixed(fields[0], 32),
        "account": fixed(fields[1], 20),
        "epoch": number(fields[2]),
        "slot": number(fields[3], 2**32 - 1),
        "family": number(fields[4], 255),
        "completions": [string(item, 0, 8192) for item in array(fields[5], 1, 16)],
    }
    require(sum(len(item) for item in read["completions"]) <= 65_536, "out_of_bounds")
    for completion in read["completions"]:
        _require_utf8(completion)
    return read | {"policy_tag": fixed(fields[6], 32) if 6 in fields else None}


def tally(payload: bytes) -> dict[str, Any]:
    """The fields of a tally."""
    fields = closed(cbor.read(payload), {0, 1, 2, 3, 4})
    read = _author(fields)
    points = []
    for item in array(fields[3], 0, 1024):
        pair = array(item, 2, 2)
        points.append((fixed(pair[0], 20), number(pair[1])))
    require(_ascends([account for account, _ in points]), "out_of_bounds")
    return read | {"points": points, "evidence_root": fixed(fields[4], 32)}


def proposal(payload: bytes) -> dict[str, Any]:
    """The fields of a proposal."""
    fields = closed(cbor.read(payload), {0, 1, 2, 3, 4})
    read = _author(fields)
    tallies = [fixed(item, 32) for item in array(fields[3], 1, 64)]
    require(_ascends(tallies), "out_of_bounds")
    shares = []
    for item in array(fields[4], 0, 1024):
        share = array(item, 3, 3)
        shares.append((fixed(share[0], 20), number(share[1]), number(share[2])))
    require(_ascends([share[0] for share in shares]), "out_of_bounds")
    return read | {"tallies": tallies, "shares": shares}


def approval(payload: bytes) -> dict[str, Any]:
    """The fields of an approval."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4})
    read = _author(fields)
    return read | {"proposal": fixed(fields[3], 32), "account_signature": string(fields[4], 65, 65)}


PAYLOADS = {
    "certificate": certificate,
    "rollout": rollout,
    "tally": tally,
    "proposal": proposal,
    "approval": approval,
}


def closed(value: Any, required: set[int], optional: set[int] = frozenset()) -> dict[int, Any]:
    """A map with the required keys, perhaps the optional ones, and no others."""
    require(isinstance(value, dict) and required <= set(value) <= required | optional, "schema")
    return value


def number(value: Any, most: int = LARGEST_NUMBER) -> int:
    """An unsigned integer."""
    require(isinstance(value, int), "schema")
    require(value <= most, "out_of_bounds")
    return value


def fixed(value: Any, size: int) -> bytes:
    """A byte string of a fixed-size type."""
    require(isinstance(value, bytes) and len(value) == size, "schema")
    return value


def string(value: Any, least: int, most: int) -> bytes:
    """A byte string within bounds."""
    require(isinstance(value, bytes), "schema")
    require(least <= len(value) <= most, "out_of_bounds")
    return value


def array(value: Any, least: int, most: int) -> list[Any]:
    """An array within bounds."""
    require(isinstance(value, list | tuple), "schema")
    require(least <= len(value) <= most, "out_of_bounds")
    return list(value)


def _author(fields: dict[int, Any]) -> dict[str, Any]:
    return {"node": fixed(fields[0], 32), "account": fixed(fields[1], 20), "epoch": number(fields[2])}


def _ascends(values: list[bytes]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _require_utf8(raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("schema") from error
