"""Section 9, catch-up: requests for ids and for rollouts, and what is read in the responses to them."""

from typing import Any

from reference import cbor, objects
from reference.refusal import Refused, require

MALFORMED = "malformed"  # no rule has a number for it: the response says so, or holds nothing


def id_request(data: bytes) -> dict[str, Any] | None:
    """Return what a request for ids says, or None if it is malformed."""
    try:
        epoch, islands, after = _parts(data, 3)
        numbers = [objects.number(island, MALFORMED) for island in objects.array(islands, MALFORMED)]
        require(len(numbers) <= 8 and all(number < 2**32 for number in numbers), MALFORMED)
        after = objects.string(after, MALFORMED)
        require(len(after) in (0, 32), MALFORMED)
        return {
            "epoch": objects.number(epoch, MALFORMED),
            "islands": sorted(set(numbers)),
            "after": after.hex(),
        }
    except Refused:
        return None


def id_response(data: bytes, after: bytes) -> dict[str, Any] | None:
    """Return what a response to a request for ids above one says, or None if it is malformed."""
    try:
        status, joined, last = _parts(data, 3)
        joined, last = objects.string(joined, MALFORMED), objects.string(last, MALFORMED)
        require(_status(status) == 0 or joined == last == b"", MALFORMED)
        require(len(last) in (0, 32), MALFORMED)
        found = _ids(joined, 1024)
        line = [after, *found]
        require(line == sorted(set(line)), MALFORMED)
        require(not last or (last > after and last >= line[-1]), MALFORMED)
        return {"status": status, "ids": [each.hex() for each in found], "next": last.hex()}
    except Refused:
        return None


def fetch_request(data: bytes) -> list[str] | None:
    """Return the ids that a request for rollouts names, or None if it is malformed."""
    try:
        joined = objects.string(cbor.read(data, cbor.FEW_VALUES), MALFORMED)
        require(joined != b"", MALFORMED)
        return [each.hex() for each in _ids(joined, 32)]
    except Refused:
        return None


def fetch_response(data: bytes, asked: int) -> dict[str, Any] | None:
    """Return what a response to a request for some rollouts says, or None if it is malformed."""
    try:
        status, items = _parts(data, 2)
        messages = [objects.string(item, MALFORMED) for item in objects.array(items, MALFORMED)]
        require(len(messages) <= asked and (len(messages) > 0) == (_status(status) == 0), MALFORMED)
        return {"status": status, "messages": [message.hex() for message in messages]}
    except Refused:
        return None


def _parts(data: bytes, count: int) -> list[Any]:
    parts = objects.array(cbor.read(data, cbor.FEW_VALUES), MALFORMED)
    require(len(parts) == count, MALFORMED)
    return list(parts)


def _status(value: Any) -> int:
    status = objects.number(value, MALFORMED)
    require(status <= 2, MALFORMED)
    return status


def _ids(joined: bytes, most: int) -> list[bytes]:
    require(len(joined) % 32 == 0 and len(joined) <= 32 * most, MALFORMED)
    return [joined[at : at + 32] for at in range(0, len(joined), 32)]
