"""Catch-up: the ids of the rollouts that a peer holds, then those rollouts that the requester lacks.

Ids come in pages, in ascending order. A rollout that is received is compared with its id, then validated like
a gossiped one: a listing is not trusted. A response of any other form is malformed, and ignored as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

from sapo_protocol.constants import MAX_FLAT_VALUES
from sapo_protocol.decoding import Value, decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.address_record import MAX_ASKED_ISLANDS

MAX_LISTED: Final = 1024
"""Ids in one response: 32 KiB, and the rollouts of an island in a minute or more."""

MAX_LISTING_BYTES: Final = 48 * 1024

MAX_FETCHED: Final = 32
"""Rollouts in one request: with 64 KiB of text each twice what fits into a response."""

MAX_FETCH_BYTES: Final = 1024 * 1024

BUSY_SECONDS: Final = 5.0
"""How long to wait after ``BUSY`` before the peer is asked again."""

_MAX_ISLAND: Final = 2**32 - 1


class CatchUpStatus(IntEnum):
    """How a peer answered a request."""

    GIVEN = 0
    BUSY = 1
    MALFORMED = 2


_STATUSES: Final = frozenset(map(int, CatchUpStatus))


@dataclass(frozen=True, slots=True)
class IdRequest:
    """The request for ids of rollouts of one epoch.

    Attributes:
        islands: homes of their authors in that epoch; all that the peer holds if empty.
        after: only ids above this one are wanted; all if unset.
    """

    epoch: int
    islands: frozenset[int] = frozenset()
    after: ContentId | None = None

    def to_bytes(self) -> bytes:
        """Return the request; with more than ``MAX_ASKED_ISLANDS`` islands all are asked for."""
        islands = sorted(self.islands) if len(self.islands) <= MAX_ASKED_ISLANDS else []
        return encode((self.epoch, tuple(islands), bytes(self.after or b"")))


@dataclass(frozen=True, slots=True)
class IdPage:
    """Ids that a peer holds.

    Attributes:
        ids: ascending, above the request's ``after`` and not above ``next``, if that is set.
        next: the value of ``after`` for the following page; none if this is the last page.
    """

    status: CatchUpStatus
    ids: tuple[ContentId, ...] = ()
    next: ContentId | None = None

    def to_bytes(self) -> bytes:
        """Return the response."""
        return encode((int(self.status), b"".join(map(bytes, self.ids)), bytes(self.next or b"")))


@dataclass(frozen=True, slots=True)
class FetchedRollouts:
    """Rollouts that a peer sends, none of them validated yet.

    Attributes:
        messages: for each id of the request, in its order, a whole message, or none if the peer does not hold
            it. Where it is shorter than the request the peer has not looked for the rest.
    """

    status: CatchUpStatus
    messages: tuple[bytes | None, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the response."""
        return encode((int(self.status), tuple(message or b"" for message in self.messages)))


def parse_id_request(request: bytes) -> IdRequest | None:
    """Return the parsed request for ids, or none if it is malformed."""
    match _decoded(request):
        case (int() as epoch, tuple() as islands, bytes() as after):
            numbers = [island for island in islands if isinstance(island, int) and island <= _MAX_ISLAND]
            if len(numbers) < len(islands) or len(islands) > MAX_ASKED_ISLANDS:
                return None
            if after and len(after) != ContentId.SIZE:
                return None
            return IdRequest(epoch, frozenset(numbers), ContentId(after) if after else None)
    return None


def parse_id_page(response: bytes, after: ContentId | None) -> IdPage | None:
    """Return the ids in a response to a request for those above one, or none if it is malformed."""
    match _decoded(response):
        case (int() as status, bytes() as joined, bytes() as last):
            if status not in _STATUSES or len(joined) > MAX_LISTED * ContentId.SIZE:
                return None
            if len(joined) % ContentId.SIZE or len(last) not in {0, ContentId.SIZE}:
                return None
            if status != CatchUpStatus.GIVEN and (joined or last):
                return None
            ids = _split(joined)
            if not _ascend((bytes(after or b""), *ids)) or (last and not _is_behind(last, ids, after)):
                return None
            found = tuple(map(ContentId, ids))
            return IdPage(CatchUpStatus(status), found, ContentId(last) if last else None)
    return None


def to_fetch_request(ids: Sequence[ContentId]) -> bytes:
    """Return the request for at most ``MAX_FETCHED`` rollouts."""
    return encode(b"".join(map(bytes, ids)))


def parse_fetch_request(request: bytes) -> tuple[ContentId, ...] | None:
    """Return the ids of the rollouts that a request asks for, or none if it is malformed."""
    joined = _decoded(request)
    if not isinstance(joined, bytes) or not 0 < len(joined) <= MAX_FETCHED * ContentId.SIZE:
        return None
    return tuple(map(ContentId, _split(joined))) if len(joined) % ContentId.SIZE == 0 else None


def parse_fetched(response: bytes, asked: int) -> FetchedRollouts | None:
    """Return the messages in a response to a request for some rollouts, or none if it is malformed.

    Args:
        asked: how many rollouts were asked for.
    """
    match _decoded(response):
        case (int() as status, tuple() as items):
            messages = tuple(item for item in items if isinstance(item, bytes))
            if status not in _STATUSES or len(messages) < len(items) or len(items) > asked:
                return None
            if bool(items) is not (status == CatchUpStatus.GIVEN):
                return None
            return FetchedRollouts(CatchUpStatus(status), tuple(message or None for message in messages))
    return None


def _decoded(data: bytes) -> Value | None:
    try:
        return decode(data, MAX_FLAT_VALUES)
    except RemoteProtocolError:
        return None


def _split(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[at : at + ContentId.SIZE] for at in range(0, len(joined), ContentId.SIZE))


def _ascend(values: tuple[bytes, ...]) -> bool:
    return all(one < other for one, other in pairwise(values))


def _is_behind(last: bytes, ids: tuple[bytes, ...], after: ContentId | None) -> bool:
    """Whether the place from which a listing goes on lies behind all that was listed so far."""
    return last >= ids[-1] if ids else last > bytes(after or b"")
