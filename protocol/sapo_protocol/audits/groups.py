"""The request for groups of an account by their slots, and the response: each with its path in the tree."""

from collections.abc import Sequence
from dataclasses import dataclass

from sapo_protocol.audits.tree import MAX_LEVELS
from sapo_protocol.constants import MAX_FLAT_VALUES
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.audits import MAX_SAMPLES


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """The groups that an auditor asks for: of one account and epoch, 1 to 8 slots."""

    account: Account
    epoch: int
    slots: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Return the bytes on the wire."""
        return encode((bytes(self.account), self.epoch, self.slots))


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """A rollout's message, not validated yet, and the path from its content id to the commitment's root."""

    message: bytes
    path: tuple[Digest, ...]

    def to_bytes(self) -> bytes:
        """Return the item of a response."""
        return encode((self.message, *map(bytes, self.path)))


def parse_group_request(request: bytes) -> GroupRequest | None:
    """Return the parsed request, or None if it is malformed."""
    try:
        value = decode(request, MAX_FLAT_VALUES)
    except RemoteProtocolError:
        return None
    match value:
        case (bytes(account), int(epoch), tuple(listed)) if len(account) == Account.SIZE:
            slots = tuple(slot for slot in listed if isinstance(slot, int))
            if 1 <= len(slots) == len(listed) <= MAX_SAMPLES:
                return GroupRequest(Account(account), epoch, slots)
    return None


def parse_opened_groups(items: Sequence[bytes]) -> tuple[OpenedGroup, ...]:
    """Return the groups in a response's items; malformed items are dropped."""
    return tuple(group for group in map(_opened, items[:MAX_SAMPLES]) if group is not None)


def _opened(item: bytes) -> OpenedGroup | None:
    try:
        value = decode(item, MAX_FLAT_VALUES)
    except RemoteProtocolError:
        return None
    match value:
        case (bytes(message), *path) if len(path) <= MAX_LEVELS:
            words = tuple(
                Digest(word) for word in path if isinstance(word, bytes) and len(word) == Digest.SIZE
            )
            return OpenedGroup(message, words) if len(words) == len(path) else None
    return None
