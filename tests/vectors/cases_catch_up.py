"""Catch-up: requests for ids and for rollouts, and the responses to them."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import Raw, cbor
from vectors.world import ALICE

LOW, MIDDLE, HIGH = bytes(31) + b"\x01", b"\x40" * 32, b"\xff" * 32
"""Ids, ascending."""

Says = dict[str, Any] | None
"""What a request or response says; none if it is malformed."""


def _many(count: int) -> list[bytes]:
    return [b"\x80" + number.to_bytes(31, "big") for number in range(count)]


def id_requests() -> Iterator[tuple[str, Says, bytes]]:
    """Yield requests for ids: name, what it says, its bytes."""
    yield "an epoch", {"epoch": 7, "islands": [], "after": ""}, cbor([7, [], b""])
    yield "two islands", {"epoch": 0, "islands": [1, 65_535], "after": ""}, cbor([0, [1, 65_535], b""])
    yield "an island twice", {"epoch": 0, "islands": [3], "after": ""}, cbor([0, [3, 3], b""])
    yield "those above one", {"epoch": 7, "islands": [], "after": MIDDLE.hex()}, cbor([7, [], MIDDLE])
    yield "the last epoch", {"epoch": 2**64 - 1, "islands": [], "after": ""}, cbor([2**64 - 1, [], b""])
    eight = list(range(8))
    yield "eight islands", {"epoch": 7, "islands": eight, "after": ""}, cbor([7, eight, b""])
    yield "nine islands", None, cbor([7, list(range(9)), b""])
    yield "an island of 2^32", None, cbor([7, [2**32], b""])
    yield "bytes for an island", None, cbor([7, [b"1"], b""])
    yield "bytes for the epoch", None, cbor([b"7", [], b""])
    yield "a number for the islands", None, cbor([7, 1, b""])
    yield "31 bytes for an id", None, cbor([7, [], MIDDLE[:31]])
    yield "text for an id", None, cbor([7, [], "a" * 32])
    yield "a part more", None, cbor([7, [], b"", 0])
    yield "a part less", None, cbor([7, []])
    yield "a map", None, cbor({0: 7, 1: [], 2: b""})
    yield "a byte more", None, cbor([7, [], b""]) + b"\x00"
    yield "nothing", None, b""


def _page(status: int, ids: list[bytes], after: bytes = b"") -> dict[str, Any]:
    return {"status": status, "ids": [each.hex() for each in ids], "next": after.hex()}


def id_responses() -> Iterator[tuple[str, bytes, Says, bytes]]:
    """Yield responses to requests for ids: name, the request's id, what it says, its bytes."""
    ids = [LOW, MIDDLE]
    yield "none", b"", _page(0, []), cbor([0, b"", b""])
    yield "two", b"", _page(0, ids), cbor([0, b"".join(ids), b""])
    yield "more behind the last", b"", _page(0, ids, MIDDLE), cbor([0, b"".join(ids), MIDDLE])
    yield "more further on", b"", _page(0, ids, HIGH), cbor([0, b"".join(ids), HIGH])
    yield "none here, more further on", LOW, _page(0, [], MIDDLE), cbor([0, b"", MIDDLE])
    yield "those above one", LOW, _page(0, [MIDDLE]), cbor([0, MIDDLE, b""])
    many = _many(1024)
    yield "1,024", b"", _page(0, many), cbor([0, b"".join(many), b""])
    yield "1,025", b"", None, cbor([0, b"".join(_many(1025)), b""])
    yield "busy", b"", _page(1, []), cbor([1, b"", b""])
    yield "malformed, it says", b"", _page(2, []), cbor([2, b"", b""])
    yield "a status of no meaning", b"", None, cbor([3, b"", b""])
    yield "busy, with ids", b"", None, cbor([1, LOW, b""])
    yield "busy, with more further on", b"", None, cbor([1, b"", LOW])
    yield "one twice", b"", None, cbor([0, LOW + LOW, b""])
    yield "descending", b"", None, cbor([0, MIDDLE + LOW, b""])
    yield "the one that was given", LOW, None, cbor([0, LOW, b""])
    yield "one below", MIDDLE, None, cbor([0, LOW, b""])
    yield "more before the last", b"", None, cbor([0, b"".join(ids), LOW])
    yield "no further", MIDDLE, None, cbor([0, b"", MIDDLE])
    yield "63 bytes of ids", b"", None, cbor([0, b"".join(ids)[:63], b""])
    yield "31 bytes for the next", b"", None, cbor([0, LOW, MIDDLE[:31]])
    yield "an array for the ids", b"", None, cbor([0, ids, b""])
    yield "a part more", b"", None, cbor([0, b"", b"", 0])
    yield "noise", b"", None, b"\xff"
    yield "nothing", b"", None, b""


def fetch_requests() -> Iterator[tuple[str, list[str] | None, bytes]]:
    """Yield requests for rollouts: name, the ids or none if it is malformed, its bytes."""
    yield "one", [LOW.hex()], cbor(LOW)
    yield "two in any order", [MIDDLE.hex(), LOW.hex()], cbor(MIDDLE + LOW)
    many = _many(32)
    yield "32", [each.hex() for each in many], cbor(b"".join(many))
    yield "33", None, cbor(b"".join(_many(33)))
    yield "none", None, cbor(b"")
    yield "33 bytes", None, cbor(LOW + b"\x00")
    yield "an array", None, cbor([LOW])
    yield "text", None, cbor("a" * 32)
    yield "a byte more", None, cbor(LOW) + b"\x00"
    yield "nothing", None, b""


def _fetched(status: int, messages: list[bytes]) -> dict[str, Any]:
    return {"status": status, "messages": [message.hex() for message in messages]}


def fetch_responses() -> Iterator[tuple[str, int, Says, bytes]]:
    """Yield responses to requests for rollouts: name, how many were asked for, what it says, its bytes."""
    rollout = ALICE.rollout()
    yield "one", 1, _fetched(0, [rollout]), cbor([0, [rollout]])
    yield "one of two, which it does not hold", 2, _fetched(0, [b"", rollout]), cbor([0, [b"", rollout]])
    yield "the first of two", 2, _fetched(0, [rollout]), cbor([0, [rollout]])
    yield "noise, which is judged later", 1, _fetched(0, [b"\xff"]), cbor([0, [b"\xff"]])
    yield "32", 32, _fetched(0, [b""] * 32), cbor([0, [b""] * 32])
    yield "busy", 1, _fetched(1, []), cbor([1, []])
    yield "malformed, it says", 1, _fetched(2, []), cbor([2, []])
    yield "a status of no meaning", 1, None, cbor([3, []])
    yield "more than were asked for", 1, None, cbor([0, [b"", b""]])
    yield "given, but nothing", 1, None, cbor([0, []])
    yield "busy, with a message", 1, None, cbor([1, [rollout]])
    yield "a number for a message", 1, None, cbor([0, [0]])
    yield "bytes for the messages", 1, None, cbor([0, rollout])
    yield "a part more", 1, None, cbor([0, [rollout], 0])
    yield "noise for a message", 1, None, cbor([0, [Raw(b"\xff")]])
    yield "nothing", 1, None, b""
