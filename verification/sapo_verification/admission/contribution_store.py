"""Store of contribution messages: tallies, proposals and approvals, as received.

Any holder of these messages can recompute an epoch's root; an account needs them to prove its share.
A message that lists its accounts on pages is stored at once, but returned only when all of its pages are
there. The store is bounded: it takes two messages per author, kind, epoch and turn, and deletes old epochs
except for the messages behind their final roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sapo_protocol.constants import CONTRIBUTIONS_PER_TURN, MAX_PAGE_ROWS
from sapo_protocol.contributions import Approval, Proposal, Tally, entries_on, page_digest, shares_on
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, SwarmId
from sapo_protocol.islands.count import paid_accounts
from sapo_protocol.terms.difficulty import Record
from sapo_verification.admission.contributions import Contribution, parse_contribution, turn_of
from sapo_verification.bounded_cache import BoundedCache
from sapo_verification.store import StoreSchema, open_database, transaction
from sapo_verification.working import Working, at_once, part

_SCHEMA = StoreSchema(
    "contributions",
    """
    CREATE TABLE IF NOT EXISTS contribution (
        content_id BLOB PRIMARY KEY, kind INTEGER NOT NULL, epoch INTEGER NOT NULL, account BLOB NOT NULL,
        envelope BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS contribution_epoch ON contribution (epoch, kind);
    CREATE TABLE IF NOT EXISTS approved (epoch INTEGER PRIMARY KEY, proposal BLOB NOT NULL);
    """,
    """
    ALTER TABLE contribution ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE contribution ADD COLUMN received_seconds REAL NOT NULL DEFAULT 0;
    CREATE TABLE posted_proposal (epoch INTEGER PRIMARY KEY, content_id BLOB NOT NULL);
    CREATE TABLE pruned_epoch (epoch INTEGER PRIMARY KEY);
    DROP TABLE approved;
    """,
    """
    CREATE TABLE page (digest BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE named_page (
        content_id BLOB NOT NULL, place INTEGER NOT NULL, digest BLOB NOT NULL,
        PRIMARY KEY (content_id, place)
    ) WITHOUT ROWID;
    CREATE INDEX named_page_digest ON named_page (digest);
    """,
    "ALTER TABLE posted_proposal ADD COLUMN is_final INTEGER NOT NULL DEFAULT 0;",
)

_PARSED: Final = 256
"""Messages that are kept in memory as well: more than those of an epoch with ten auditors."""

_KINDS: Final[Mapping[type[Contribution], Kind]] = {
    Tally: Kind.TALLY,
    Proposal: Kind.PROPOSAL,
    Approval: Kind.APPROVAL,
}

M = TypeVar("M", Tally, Proposal, Approval)

_ROOTS: Final = 256

_PAGES_AT_ONCE: Final = 16
"""Pages that are written in one transaction, before other tasks may run."""

_MAX_PAGE_BYTES: Final = 3 + 40 * MAX_PAGE_ROWS
"""A full page of shares with the largest numbers; a longer page is not valid."""

_KEPT_PAGES: Final = 2
"""Newest postings whose pages are kept, beside the last final one, which proves all shares."""

_KEPT_FINAL_EPOCHS: Final = 1024
"""How long the messages behind a final root are kept: the chain bounds their number, not their authors."""


class ContributionStore:
    """Authentic contribution messages in SQLite: the first two of each account, kind, epoch and turn."""

    def __init__(self, path: Path | str, swarm_id: SwarmId) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._swarm_id = swarm_id
        self._parsed = BoundedCache[ContentId, Contribution](_PARSED)
        self._roots = BoundedCache[ContentId, EpochRoot](_ROOTS)
        self.revision = 0
        """Increases with every change of what this store may return."""

    def add(
        self,
        content_id: ContentId,
        kind: Kind,
        message: Contribution,
        envelope: bytes,
        *,
        received_seconds: float = 0.0,
    ) -> None:
        """Store an authentic message.

        Args:
            received_seconds: Unix time of its admission; 0 if it is not needed.
        """
        self._connection.execute(
            "INSERT OR IGNORE INTO contribution"
            " (content_id, kind, epoch, account, envelope, turn, received_seconds)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                content_id,
                int(kind),
                message.epoch,
                message.account,
                envelope,
                turn_of(message),
                received_seconds,
            ),
        )
        if not isinstance(message, Approval):
            named = [(content_id, place, digest) for place, digest in enumerate(message.pages)]
            self._connection.executemany("INSERT OR IGNORE INTO named_page VALUES (?, ?, ?)", named)
        self.revision += 1

    def add_pages(self, pages: Iterable[bytes], *, received_seconds: float = 0.0) -> None:
        """Store those pages that a stored message names.

        Args:
            received_seconds: Unix time; a message that lacked one of these pages counts as received at this
                time.
        """
        for page in pages:
            if len(page) > _MAX_PAGE_BYTES:
                continue
            digest = page_digest(page)
            naming = self._connection.execute("SELECT content_id FROM named_page WHERE digest = ?", (digest,))
            completed = naming.fetchall()
            if not completed:
                continue
            with transaction(self._connection):
                self._connection.execute("INSERT OR IGNORE INTO page VALUES (?, ?)", (digest, page))
                if self._connection.execute("SELECT changes()").fetchone()[0]:
                    self._connection.executemany(
                        "UPDATE contribution SET received_seconds = ? WHERE content_id = ?",
                        [(received_seconds, content_id) for (content_id,) in completed],
                    )
                    self.revision += 1

    def adding_pages(self, pages: Sequence[bytes], *, received_seconds: float = 0.0) -> Working[None]:
        """Store pages as ``add_pages`` does, in several transactions."""
        self.add_pages(pages[:_PAGES_AT_ONCE], received_seconds=received_seconds)
        for at in range(_PAGES_AT_ONCE, len(pages), _PAGES_AT_ONCE):
            yield _pause
            self.add_pages(pages[at : at + _PAGES_AT_ONCE], received_seconds=received_seconds)

    def pages(self, digests: Sequence[Digest]) -> tuple[bytes, ...]:
        """Return those of the pages that are stored."""
        query = "SELECT content FROM page WHERE digest = ?"
        found = (self._connection.execute(query, (digest,)).fetchone() for digest in digests)
        return tuple(row[0] for row in found if row is not None)

    def page_count(self) -> int:
        """Return the number of stored pages."""
        return int(self._connection.execute("SELECT COUNT(*) FROM page").fetchone()[0])

    def missing_pages(self, limit: int) -> tuple[Digest, ...]:
        """Return at most ``limit`` digests of pages to request, those of the newest epochs first.

        Only pages of tallies and of proposals that the chain names are requested; any other proposal can be
        computed from the tallies. Each message contributes its first missing page before any contributes its
        second, so that pages which no peer has do not delay the others.
        """
        rows = self._connection.execute(
            "SELECT digest FROM (SELECT named_page.digest AS digest, epoch,"
            " ROW_NUMBER() OVER (PARTITION BY content_id ORDER BY place) AS number"
            " FROM named_page JOIN contribution USING (content_id)"
            " LEFT JOIN page ON page.digest = named_page.digest WHERE page.digest IS NULL"
            " AND (kind = ? OR content_id IN (SELECT content_id FROM posted_proposal)))"
            " GROUP BY digest ORDER BY MIN(number), MAX(epoch) DESC, digest LIMIT ?",
            (int(Kind.TALLY), limit),
        )
        return tuple(Digest(row[0]) for row in rows)

    def incomplete_proposals(self, epoch: int) -> dict[ContentId, Proposal]:
        """Return the proposals of an epoch of which pages are missing, without their shares."""
        rows = self._connection.execute(
            "SELECT content_id, envelope FROM contribution WHERE epoch = ? AND kind = ? AND content_id IN"
            " (SELECT content_id FROM named_page LEFT JOIN page USING (digest) WHERE content IS NULL)",
            (epoch, int(Kind.PROPOSAL)),
        ).fetchall()
        parsed = ((ContentId(id_), self._parse(envelope)) for id_, envelope in rows)
        return {id_: message for id_, message in parsed if isinstance(message, Proposal)}

    def epoch_root(self, content_id: ContentId) -> EpochRoot | None:
        """Return the epoch root that a stored proposal stands for, or None if it is not stored."""
        return at_once(self._rooting(content_id))

    def reading(self, epoch: int) -> Working[None]:
        """Load an epoch's tallies and proposals into memory, and compute the proposals' roots."""
        for content_id in self._ids(epoch, Kind.TALLY):
            yield from self._reading(content_id, Tally)
        yield from self.reading_proposals(epoch)

    def reading_proposals(self, epoch: int) -> Working[None]:
        """Load an epoch's proposals as ``reading`` does, without the tallies."""
        for content_id in self._ids(epoch, Kind.PROPOSAL):
            yield from self.reading_proposal(content_id)

    def reading_proposal(self, content_id: ContentId) -> Working[None]:
        """Load one proposal as ``reading`` does."""
        yield from self._reading(content_id, Proposal)
        yield from self._rooting(content_id)

    def _rooting(self, content_id: ContentId) -> Working[EpochRoot | None]:
        if content_id not in self._roots:
            proposal = yield from self._reading(content_id, Proposal)
            if proposal is None:
                return None
            work = partial(proposal.root, content_id)
            self._roots[content_id] = yield from part(len(proposal.shares), work)
        return self._roots[content_id]

    def has(self, content_id: ContentId) -> bool:
        """Whether a message is stored."""
        row = self._connection.execute("SELECT 1 FROM contribution WHERE content_id = ?", (content_id,))
        return row.fetchone() is not None

    def received_seconds(self, content_id: ContentId) -> float | None:
        """Return when a message was admitted, or None if it is not stored."""
        query = "SELECT received_seconds FROM contribution WHERE content_id = ?"
        row = self._connection.execute(query, (content_id,)).fetchone()
        return float(row[0]) if row else None

    def record(self, proposal: ContentId) -> Record | None:
        """Return the record in a proposal, or None if it is not stored."""
        found = self.proposal(proposal)
        return None if found is None else found.record

    def is_posted(self, content_id: ContentId) -> bool:
        """Whether the ledger's root of the epoch is that of this content, as far as this node knows."""
        query = "SELECT 1 FROM posted_proposal WHERE content_id = ?"
        return self._connection.execute(query, (content_id,)).fetchone() is not None

    def has_room(self, content_id: ContentId, kind: Kind, content: Contribution) -> bool:
        """Whether one more message of this account, kind, epoch and turn is stored.

        A proposal on the ledger always is, and so are the tallies that it names: a node that has two others
        of their author could not check the posting without them.
        """
        stored = self._connection.execute(
            "SELECT COUNT(*) FROM contribution WHERE epoch = ? AND kind = ? AND account = ? AND turn = ?",
            (content.epoch, int(kind), content.account, turn_of(content)),
        ).fetchone()[0]
        if stored < CONTRIBUTIONS_PER_TURN or self.is_posted(content_id):
            return True
        return kind is Kind.TALLY and content_id in self._posted_tallies(content.epoch)

    def lacks_tallies(self, proposal: ContentId) -> bool:
        """Whether a stored proposal names tallies that are not stored."""
        return any(not self.has(tally) for tally in self._tallies_of(proposal))

    def _posted_tallies(self, epoch: int) -> frozenset[ContentId]:
        """Return the tallies that the proposal on the ledger names; none if it is not stored."""
        posted = self._posted(epoch)
        return frozenset(() if posted is None else self._tallies_of(posted))

    def _posted(self, epoch: int) -> ContentId | None:
        """Return the proposal behind the ledger's root of an epoch, as far as this node knows."""
        query = "SELECT content_id FROM posted_proposal WHERE epoch = ?"
        row = self._connection.execute(query, (epoch,)).fetchone()
        return ContentId(row[0]) if row else None

    def _tallies_of(self, proposal: ContentId) -> tuple[ContentId, ...]:
        """Return the tallies that a stored proposal names, also if pages of it are missing."""
        row = self._connection.execute(
            "SELECT envelope FROM contribution WHERE content_id = ? AND kind = ?",
            (proposal, int(Kind.PROPOSAL)),
        ).fetchone()
        found = self._parse(row[0]) if row else None
        return found.tallies if isinstance(found, Proposal) else ()

    def note_posted(self, epoch: int, proposal: ContentId, *, is_final: bool) -> None:
        """Record the proposal behind the ledger's root of an epoch; it may not have been received yet.

        Args:
            is_final: whether it is that of the last final epoch; any later final one was recalled.
        """
        if is_final:
            self._connection.execute("DELETE FROM posted_proposal WHERE epoch > ? AND is_final", (epoch,))
        self._connection.execute(
            "INSERT OR REPLACE INTO posted_proposal (epoch, content_id, is_final) VALUES (?, ?, ?)",
            (epoch, proposal, is_final),
        )

    def note_earlier_final(self, epoch: int, proposal: ContentId) -> None:
        """Record the proposal behind an earlier final root, so that it and its pages are requested."""
        self._connection.execute(
            "INSERT OR IGNORE INTO posted_proposal (epoch, content_id) VALUES (?, ?)", (epoch, proposal)
        )

    def forget(self, before_epoch: int) -> None:
        """Drop the messages of older epochs, those behind a final root after ``_KEPT_FINAL_EPOCHS``."""
        rows = self._connection.execute(
            "SELECT DISTINCT epoch FROM contribution WHERE epoch < ? AND epoch NOT IN"
            " (SELECT epoch FROM pruned_epoch)",
            (before_epoch,),
        ).fetchall()
        for (epoch,) in rows:
            self._prune(epoch)
        self._forget_pages(before_epoch)
        last = self._connection.execute("SELECT MAX(epoch) FROM posted_proposal WHERE is_final").fetchone()[0]
        if last is not None:
            horizon = min(before_epoch - _KEPT_FINAL_EPOCHS, last)  # the last final epoch proves all shares
            self._parsed.clear()
            self._connection.execute("DELETE FROM contribution WHERE epoch < ?", (horizon,))
            self._connection.execute("DELETE FROM posted_proposal WHERE epoch < ?", (horizon,))
            self._connection.execute("DELETE FROM pruned_epoch WHERE epoch < ?", (horizon,))

    def _forget_pages(self, before_epoch: int) -> None:
        """Drop the pages of older epochs, but for those behind the newest postings and the last final one."""
        with transaction(self._connection):
            self._connection.execute(
                "DELETE FROM named_page WHERE content_id NOT IN"
                " (SELECT content_id FROM contribution WHERE epoch >= ?) AND content_id NOT IN"
                " (SELECT content_id FROM posted_proposal ORDER BY epoch DESC LIMIT ?) AND content_id NOT IN"
                " (SELECT content_id FROM posted_proposal WHERE is_final ORDER BY epoch DESC LIMIT 1)",
                (before_epoch, _KEPT_PAGES),
            )
            self._connection.execute("DELETE FROM page WHERE digest NOT IN (SELECT digest FROM named_page)")
        self._parsed.clear()
        self.revision += 1

    def tallies(self, epoch: int) -> dict[ContentId, Tally]:
        """Return the tallies of an epoch, one per auditor: of two, the one with the smaller id."""
        found: dict[ContentId, Tally] = {}
        authors: set[Account] = set()
        for content_id, tally in self._messages(epoch, Tally):
            if tally.account not in authors:
                authors.add(tally.account)
                found[content_id] = tally
        return found

    def settled_tallies(self, epoch: int, before_seconds: float) -> dict[ContentId, Tally]:
        """Return the tallies that every node has by now: received before a Unix time, the only one of their
        author.

        If an auditor sent another tally to other nodes, that one has arrived here as well, since every node
        forwards the first two.
        """
        rows = self._connection.execute(
            "SELECT content_id FROM contribution WHERE epoch = ? AND kind = ?"
            " GROUP BY account HAVING COUNT(*) = 1 AND MAX(received_seconds) <= ?",
            (epoch, int(Kind.TALLY), before_seconds),
        )
        settled = {ContentId(row[0]) for row in rows}
        return {id_: tally for id_, tally in self._messages(epoch, Tally) if id_ in settled}

    def tally(self, content_id: ContentId) -> Tally | None:
        """Return one tally by its id."""
        return self._message(content_id, Tally)

    def proposal(self, content_id: ContentId) -> Proposal | None:
        """Return one proposal by its id."""
        return self._message(content_id, Proposal)

    def counting_paid(self, proposal: ContentId) -> Working[int | None]:
        """Return how many accounts have points in a proposal, or None if it or a page is missing.

        The proposal is not kept in memory: that of a large swarm takes megabytes, and is not needed again.
        """
        message = self._parsed.get(proposal)
        if not isinstance(message, Proposal):
            message = yield from self._read(proposal, Proposal)
        if not isinstance(message, Proposal):
            return None
        return (yield from part(len(message.shares), partial(paid_accounts, message)))

    def proposals(self, epoch: int) -> dict[ContentId, Proposal]:
        """Return the proposals of an epoch."""
        return dict(self._messages(epoch, Proposal))

    def approvals(self, epoch: int, proposal: ContentId | None = None) -> Sequence[Approval]:
        """Return the approvals of a proposal, or of all of an epoch."""
        found = (approval for _, approval in self._messages(epoch, Approval))
        return [each for each in found if proposal in (None, each.proposal)]

    def envelopes(self, since_epoch: int) -> tuple[bytes, ...]:
        """Return the messages of an epoch and later ones, for peers that ask."""
        rows = self._connection.execute(
            "SELECT envelope FROM contribution WHERE epoch >= ? ORDER BY epoch, kind", (since_epoch,)
        )
        return tuple(row[0] for row in rows)

    def newest(self, since_epoch: int, max_bytes: int) -> tuple[bytes, ...]:
        """Return the last ones of ``envelopes`` that together have no more bytes.

        No more of them are read: all those of sixteen epochs can be tens of megabytes.
        """
        rows = self._connection.execute(
            "SELECT envelope FROM contribution WHERE epoch >= ? ORDER BY epoch DESC, kind DESC",
            (since_epoch,),
        )
        found: list[bytes] = []
        for (envelope,) in rows:
            max_bytes -= len(envelope)
            if max_bytes < 0:
                break
            found.append(envelope)
        return tuple(reversed(found))

    def _prune(self, epoch: int) -> None:
        """Delete all messages of an epoch but the posted proposal, its tallies and its approvals."""
        posted = self._posted(epoch)
        proposal = None if posted is None else self.proposal(posted)
        kept: set[ContentId] = set()
        if posted is not None and proposal is not None:
            approvals = (id_ for id_, a in self._messages(epoch, Approval) if a.proposal == posted)
            kept = {posted, *proposal.tallies, *approvals}
        stored = self._connection.execute("SELECT content_id FROM contribution WHERE epoch = ?", (epoch,))
        dropped = [(id_,) for (id_,) in stored.fetchall() if id_ not in kept]
        with transaction(self._connection):
            self._parsed.clear()
            self._connection.executemany("DELETE FROM contribution WHERE content_id = ?", dropped)
            self._connection.execute("INSERT OR REPLACE INTO pruned_epoch VALUES (?)", (epoch,))

    def _messages(self, epoch: int, type_: type[M]) -> list[tuple[ContentId, M]]:
        found = ((id_, self._message(id_, type_)) for id_ in self._ids(epoch, _KINDS[type_]))
        return [(id_, message) for id_, message in found if message is not None]

    def _ids(self, epoch: int, kind: Kind) -> list[ContentId]:
        rows = self._connection.execute(
            "SELECT content_id FROM contribution WHERE epoch = ? AND kind = ? ORDER BY content_id",
            (epoch, int(kind)),
        ).fetchall()
        return [ContentId(row[0]) for row in rows]

    def _message(self, content_id: ContentId, type_: type[M]) -> M | None:
        """Return a stored message of a kind, from memory if possible: auditors read the newest ones often."""
        return at_once(self._reading(content_id, type_))

    def _reading(self, content_id: ContentId, type_: type[M]) -> Working[M | None]:
        if isinstance(known := self._parsed.get(content_id), type_):
            return known
        message = yield from self._read(content_id, type_)
        if message is None:
            return None
        self._parsed[content_id] = message
        return message if isinstance(message, type_) else None

    def _read(self, content_id: ContentId, type_: type[Contribution]) -> Working[Contribution | None]:
        row = self._connection.execute(
            "SELECT envelope FROM contribution WHERE content_id = ? AND kind = ?",
            (content_id, int(_KINDS[type_])),
        ).fetchone()
        return (yield from self._completing(content_id, self._parse(row[0]))) if row else None

    def _parse(self, envelope: bytes) -> Contribution:
        """Return a stored message, without the rows of its pages."""
        return parse_contribution(parse_envelope(envelope, self._swarm_id))

    def _completing(self, content_id: ContentId, message: Contribution) -> Working[Contribution | None]:
        """Return a message with the rows of its pages; None if a page is missing or not valid."""
        if isinstance(message, Approval) or not message.pages:
            return message
        rows = self._connection.execute(
            "SELECT content FROM named_page JOIN page USING (digest) WHERE content_id = ? ORDER BY place",
            (content_id,),
        ).fetchall()
        pages = [row[0] for row in rows]
        if len(pages) < len(message.pages):
            return None
        completed: Contribution | None = yield partial(_with_rows, message, pages)
        if completed is None:
            self._drop_pages(content_id)
        return completed

    def _drop_pages(self, content_id: ContentId) -> None:
        """Drop a message's pages, one of which is not valid, so that they are not requested again."""
        with transaction(self._connection):
            self._connection.execute("DELETE FROM named_page WHERE content_id = ?", (content_id,))
            self._connection.execute("DELETE FROM page WHERE digest NOT IN (SELECT digest FROM named_page)")


def _with_rows(message: Tally | Proposal, pages: Sequence[bytes]) -> Contribution | None:
    """Return a message with the rows of its pages, or None if they are not valid."""
    try:
        if isinstance(message, Tally):
            return replace(message, points=entries_on(pages))
        return replace(message, shares=shares_on(pages))
    except RemoteProtocolError:
        return None


def _pause() -> None:
    """Do nothing; yielded so that other tasks may run between two transactions."""
