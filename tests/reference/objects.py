"""Sections 3 and 4: envelope and objects as plain dictionaries, read in the order of section 6.2."""

from hashlib import sha256
from itertools import pairwise
from typing import Any

from reference import cbor
from reference.refusal import Refused, require

KINDS = {1: "certificate", 2: "rollout", 3: "tally", 4: "proposal", 5: "approval", 6: "equivocation"}


def envelope(data: bytes, swarm: bytes, *, commits: bool = False) -> dict[str, Any]:
    """Return the envelope in a message of a swarm, with its signed bytes and content id.

    Args:
        commits: whether it came over the topic of commitments, where alone kind 7 is known.
    """
    kinds = KINDS | ({7: "commitment"} if commits else {})
    require(len(data) <= 131_072, "R0.2")
    fields = closed(cbor.read(data, cbor.FEW_VALUES), {0, 1, 2, 3, 4}, ("R1.0.12", "R1.0.16"))
    require(number(fields[0], "R1.0.13") == 1, "R2.1")
    require(1 <= number(fields[1], "R1.0.13") <= 23, "R2.2")
    require(fixed(fields[2], 32, "R1.0.13") == swarm, "R2.3")
    payload = string(fields[3], "R1.0.13")
    signature = string(fields[4], "R1.0.13")
    require(len(signature) == 64, "R1.0.14")
    require(fields[1] in kinds, "R2.6")
    kind = kinds[fields[1]]
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
    """Return the fields of a certificate."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4}, ("R1.1.1", "R1.1.5"))
    read: dict[str, Any] = {
        "node": fixed(fields[0], 32, "R1.1.2"),
        "account": fixed(fields[1], 20, "R1.1.2"),
        "not_before": number(fields[2], "R1.1.2"),
        "not_after": number(fields[3], "R1.1.2"),
    }
    require(1 <= read["not_after"] - read["not_before"] <= 34_560_000, "R1.1.3")
    signature = string(fields[4], "R1.1.2")
    require(len(signature) == 65, "R1.1.4")
    return read | {"account_signature": signature}


def rollout(payload: bytes) -> dict[str, Any]:
    """Return the fields of a rollout."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4, 5}, ("R1.2.1", "R1.2.9"), {6})
    read = _author(fields, "R1.2.2") | {"slot": number(fields[3], "R1.2.2")}
    require(read["slot"] < 2**32, "R1.2.3")
    read["family"] = number(fields[4], "R1.2.2")
    require(read["family"] < 256, "R1.2.4")
    completions = array(fields[5], "R1.2.2")
    require(1 <= len(completions) <= 16, "R1.2.5")
    for completion in completions:
        require(len(string(completion, "R1.2.2")) <= 8192, "R1.2.6")
    require(sum(map(len, completions)) <= 65_536, "R1.2.7")
    for completion in completions:
        cbor.require_utf8(completion, "R1.2.8")
    tag = fixed(fields[6], 32, "R1.2.2") if 6 in fields else None
    return read | {"completions": completions, "policy_tag": tag}


def tally(payload: bytes, families: int = 0) -> dict[str, Any]:
    """Return the fields of a tally; ``families`` of the suite, 0 where the manifest has no ladders."""
    keys = {0, 1, 2, 3, 4} | ({5} if families else set())
    fields = closed(cbor.read(payload), keys, ("R1.3.1", "R1.3.9"), reserved=range(6, 24))
    read = _author(fields, "R1.3.2")
    entries = array(fields[3], "R1.3.2")
    if entries and isinstance(entries[0], bytes):
        read["pages"] = _digests(entries, "R1.3.8", "R1.3.2")
    else:
        read["points"] = _points(entries)
    read["evidence_root"] = fixed(fields[4], 32, "R1.3.2")
    if families:
        read["outcomes"] = _rows(fields[5], families, 3, ("R1.3.2", "R1.3.6", "R1.3.7"))
    return read


def _points(entries: list[Any]) -> list[tuple[bytes, int]]:
    require(len(entries) <= 1024, "R1.3.3")
    points = []
    for entry in entries:
        require(len(array(entry, "R1.3.2")) == 2, "R1.3.4")
        points.append((fixed(entry[0], 20, "R1.3.2"), number(entry[1], "R1.3.2")))
    require(_ascends([account for account, _ in points]), "R1.3.5")
    return points


def proposal(payload: bytes, families: int = 0) -> dict[str, Any]:
    """Return the fields of a proposal; ``families`` as for a tally."""
    keys = {0, 1, 2, 3, 4} | ({6} if families else set())
    fields = closed(cbor.read(payload), keys, ("R1.4.1", "R1.4.12"), {5}, reserved=range(7, 24))
    read = _author(fields, "R1.4.2")
    require(1 <= len(array(fields[3], "R1.4.2")) <= 64, "R1.4.3")
    tallies = [fixed(item, 32, "R1.4.2") for item in fields[3]]
    require(_ascends(tallies), "R1.4.4")
    listed = array(fields[4], "R1.4.2")
    if listed and isinstance(listed[0], bytes):
        read["pages"] = _digests(listed, "R1.4.11", "R1.4.2")
    else:
        read["shares"] = _shares(listed)
    read |= {"tallies": tallies, "turn": _turn(fields, "R1.4.2", "R1.4.8")}
    if families:
        read["record"] = _rows(fields[6], families, 4, ("R1.4.2", "R1.4.9", "R1.4.10"))
    return read


def _shares(listed: list[Any]) -> list[tuple[bytes, int, int]]:
    require(len(listed) <= 1024, "R1.4.5")
    shares = []
    for share in listed:
        require(len(array(share, "R1.4.2")) == 3, "R1.4.6")
        account = fixed(share[0], 20, "R1.4.2")
        shares.append((account, number(share[1], "R1.4.2"), number(share[2], "R1.4.2")))
    require(_ascends([share[0] for share in shares]), "R1.4.7")
    return shares


def approval(payload: bytes) -> dict[str, Any]:
    """Return the fields of an approval."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4}, ("R1.5.1", "R1.5.5"), {5})
    read = _author(fields, "R1.5.2") | {"proposal": fixed(fields[3], 32, "R1.5.2")}
    signature = string(fields[4], "R1.5.2")
    require(len(signature) == 65, "R1.5.3")
    return read | {"account_signature": signature, "turn": _turn(fields, "R1.5.2", "R1.5.4")}


def commitment(payload: bytes) -> dict[str, Any]:
    """Return the fields of a commitment."""
    fields = closed(cbor.read(payload, cbor.FEW_VALUES), {0, 1, 2, 3, 4}, ("R1.7.1", "R1.7.5"))
    read = _author(fields, "R1.7.2") | {"slots": string(fields[3], "R1.7.2")}
    require(1 <= len(read["slots"]) <= 8192, "R1.7.3")
    require(read["slots"][-1] > 0, "R1.7.4")
    return read | {"root": fixed(fields[4], 32, "R1.7.2")}


def response(data: bytes) -> list[bytes]:
    """Return the messages in the response to a request."""
    return [string(item, "R1.0.15") for item in array(cbor.read(data), "R1.0.15")]


def proof(read: dict[str, Any], swarm: bytes) -> list[dict[str, Any]]:
    """Return the two rollouts in the envelope of an equivocation, each with its own envelope's fields."""
    fields = closed(cbor.read(read["payload"], cbor.FEW_VALUES), {0, 1}, ("R1.6.1", "R1.6.5"))
    messages = [string(fields[key], "R1.6.2") for key in (0, 1)]
    envelopes = [envelope(message, swarm) for message in messages]
    rollouts = []
    for inner in envelopes:
        require(inner["kind"] == "rollout", "R2.5")
        rollouts.append(inner | rollout(inner["payload"]))
    require(rollouts[0]["content_id"] < rollouts[1]["content_id"], "R1.6.3")
    places = [(one["epoch"], one["account"], one["slot"]) for one in rollouts]
    require(places[0] == places[1], "R1.6.4")
    require(read["signature"] == bytes(64), "R7.2")
    return rollouts


def closed(
    value: Any,
    required: set[int],
    rules: tuple[str, str],
    optional: set[int] | frozenset[int] = frozenset(),
    reserved: range | None = None,
) -> dict[int, Any]:
    """Return a map with the required keys, perhaps the optional ones, and no others.

    Args:
        rules: about other keys, and about reserved ones.
        reserved: keys; where they are not given, all up to 23 that are neither required nor optional.
    """
    known = required | optional
    later = set(reserved or range(max(known) + 1, 24))
    if not isinstance(value, dict) or not required <= set(value) <= known | later:
        raise Refused(rules[0])
    require(not later & set(value), rules[1])
    return value


def number(value: Any, rule: str) -> int:
    """Return an unsigned integer."""
    if not isinstance(value, int):
        raise Refused(rule)
    return value


def fixed(value: Any, size: int, rule: str) -> bytes:
    """Return a byte string of a fixed-size type."""
    if not isinstance(value, bytes) or len(value) != size:
        raise Refused(rule)
    return value


def string(value: Any, rule: str) -> bytes:
    """Return a byte string."""
    if not isinstance(value, bytes):
        raise Refused(rule)
    return value


def array(value: Any, rule: str) -> list[Any]:
    """Return an array."""
    if not isinstance(value, list | tuple):
        raise Refused(rule)
    return list(value)


def _digests(items: list[Any], count: str, types: str) -> list[bytes]:
    require(len(items) <= 256, count)
    return [fixed(item, 32, types) for item in items]


def page(data: bytes, numbers: int) -> list[tuple[Any, ...]] | None:
    """Return the rows of a page, each an account and so many numbers; None if it lists anything else."""
    try:
        rows = array(cbor.read(data), "page")
        require(1 <= len(rows) <= 1024, "page")
        for row in rows:
            require(len(array(row, "page")) == 1 + numbers, "page")
            fixed(row[0], 20, "page")
            for value in row[1:]:
                number(value, "page")
    except Refused:
        return None
    return [tuple(row) for row in rows]


def _rows(value: Any, count: int, width: int, rules: tuple[str, str, str]) -> list[list[int]]:
    """Return so many rows of so many numbers; the rules are of types, of their number, of their width."""
    types, number_of_rows, width_of_rows = rules
    rows = array(value, types)
    require(len(rows) == count, number_of_rows)
    for row in rows:
        require(len(array(row, types)) == width, width_of_rows)
        for item in row:
            number(item, types)
    return rows


def _turn(fields: dict[int, Any], types: str, bound: str) -> int:
    if 5 not in fields:
        return 0
    turn = number(fields[5], types)
    require(1 <= turn < 2**32, bound)
    return turn


def _author(fields: dict[int, Any], rule: str) -> dict[str, Any]:
    node, account = fixed(fields[0], 32, rule), fixed(fields[1], 20, rule)
    return {"node": node, "account": account, "epoch": number(fields[2], rule)}


def _ascends(values: list[bytes]) -> bool:
    return all(a < b for a, b in pairwise(values))
