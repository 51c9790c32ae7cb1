"""The records of final epochs: a chain of events, read backwards from the one hash that the state holds."""

import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from eth_utils import keccak

from sapo_client.ledger.contract import EpochLedgerContract
from sapo_client.ledger.errors import RecordHidden
from sapo_client.ledger.records import EpochRecord, FinalRecord, Tip
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Digest

_EMPTY: Final = Digest((1).to_bytes(32, "big"))
"""``EMPTY_HISTORY``: what comes before the first record."""

_WORD: Final = 32
_WORDS: Final = 10
"""ABI types of an event's data: a root's six fields, signers, time of posting, and the tip before."""

_CHUNK_BLOCKS: Final = 1_000
"""Blocks that public endpoints commonly allow per ``eth_getLogs`` request."""

_KEPT: Final = 10_000
"""Maximum number of records in memory, about a kilobyte each."""


class History:
    """The records of final epochs, each read once.

    The endpoints agree on one hash. It proves the newest record, which holds the hash of the one before: of
    all the rest, no endpoint can change or leave out anything unseen. A record is kept by its hash, so that
    no reorganisation makes wrong what is kept.

    Every method raises ``NotYet`` or ``Disagreement`` where the endpoints do not agree on the hash, and
    ``RecordHidden`` where none of them shows a record that is proven.
    """

    def __init__(self, ledger: EpochLedgerContract) -> None:
        self._ledger = ledger
        self._known: dict[Digest, FinalRecord] = {}
        self._lock = threading.Lock()

    def last(self) -> EpochRecord | None:
        """Return the last final epoch, if there is one."""
        with self._lock:
            return next(self._walk(), None)

    def record(self, epoch: int) -> EpochRecord | None:
        """Return the posting of an epoch, if it is final."""
        found = self.before(epoch + 1)
        return found if found and found.root.epoch == epoch else None

    def before(self, epoch: int) -> EpochRecord | None:
        """Return the last final epoch below a number, if there is one."""
        with self._lock:
            return next((record for record in self._walk() if record.root.epoch < epoch), None)

    def recent(self, count: int) -> list[EpochRecord]:
        """Return the last final epochs, newest first, at most so many."""
        return [final.record for final in self.newest(count)]

    def newest(self, count: int) -> list[FinalRecord]:
        """Return the last final epochs with all fields of their events, newest first, at most so many."""
        with self._lock:
            return [final for _, final in islice(self._walk_back(), count)]

    def by_block(self, block: int) -> EpochRecord | None:
        """Return the last epoch that was final in a block, if there was one."""
        with self._lock:
            return next((final.record for at, final in self._walk_back() if at <= block), None)

    def root_by(self, block: int) -> EpochRoot | None:
        """Return the root of that epoch."""
        record = self.by_block(block)
        return record.root if record else None

    def roots_by(self, block: int, first_epoch: int) -> list[EpochRoot]:
        """Return the roots that were final in a block, oldest first, back to the last before an epoch."""
        found: list[EpochRoot] = []
        with self._lock:
            for at, final in self._walk_back():
                if at <= block:
                    found.append(final.record.root)
                    if final.record.root.epoch < first_epoch:
                        break
        return found[::-1]

    def all(self) -> list[EpochRecord]:
        """Return every final epoch, oldest first."""
        with self._lock:
            return list(self._walk())[::-1]

    def _walk(self) -> Iterator[EpochRecord]:
        """Yield records, newest first."""
        return (final.record for _, final in self._walk_back())

    def _walk_back(self) -> Iterator[tuple[int, FinalRecord]]:
        """Yield records with the blocks in which they became final, newest first."""
        if len(self._known) > _KEPT:
            self._known.clear()
        tip, blocks = self._ledger.tip(), 1
        while tip.history != _EMPTY:
            if tip.history not in self._known:
                self._read(tip, blocks)
            link = self._known[tip.history]
            yield tip.block, link
            tip, blocks = link.before, _CHUNK_BLOCKS

    def _read(self, tip: Tip, blocks: int) -> None:
        """Read a record, and others from so many blocks that end with its own, from any endpoint with it."""
        answers = self._ledger.final_events(max(0, tip.block - blocks + 1), tip.block)
        shown = [(answer.endpoint, _links(answer.value)) for answer in answers if answer.value is not None]
        # The rest is unproven: an endpoint may show as many of those as it likes.
        proven = _proven(tip, {name: link for _, links in shown for name, link in links.items()})
        self._known.update(proven)
        if not proven:
            unable = [answer.unable for answer in answers if answer.unable is not None]
            raise unable[0] if len(unable) == len(answers) else RecordHidden(tip.block)
        for endpoint, links in shown:
            if tip.history not in links:
                endpoint.disagreed("it hides or changes the record of a final epoch")


def _proven(tip: Tip, shown: Mapping[Digest, FinalRecord]) -> dict[Digest, FinalRecord]:
    """Return those of the shown records that are linked by hashes from a proven one."""
    found: dict[Digest, FinalRecord] = {}
    while tip.history in shown:
        found[tip.history] = shown[tip.history]
        tip = shown[tip.history].before
    return found


def _links(events: tuple[bytes, ...]) -> dict[Digest, FinalRecord]:
    """Return events by their hash; they are not verified yet."""
    links = (_link(data) for data in events if len(data) == _WORDS * _WORD)
    return {link.name: link for link in links}


def _link(data: bytes) -> FinalRecord:
    words = [data[start : start + _WORD] for start in range(0, len(data), _WORD)]
    epoch, base, contribution, cumulative, total, archive, signers, posted_at, history, block = words
    root = EpochRoot(
        epoch=_number(epoch),
        base_root=Digest(base),
        contribution_root=Digest(contribution),
        cumulative_root=Digest(cumulative),
        total=_number(total),
        archive_digest=Digest(archive),
    )
    record = EpochRecord(root, _number(posted_at), _number(signers))
    return FinalRecord(Digest(keccak(data)), record, Tip(Digest(history), _number(block)))


def _number(word: bytes) -> int:
    return int.from_bytes(word, "big")
