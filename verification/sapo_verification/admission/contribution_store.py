"""Store of contribution messages: tallies, proposals and approvals, as received.

Any holder of these messages can recompute an epoch's root; an account needs them to prove its share.
The store is bounded: an author has two places per kind, epoch and turn, and old epochs are forgotten but for
the messages behind their final roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from sapo_protocol.constants import CONTRIBUTIONS_PER_TURN
from sapo_protocol.contributions import Approval, Proposal, Tally
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.identifiers import Account, ContentId, SwarmId
from sapo_verification.admission.contributions import Contribution, parse_contribution, turn_of
from sapo_verification.store import StoreSchema, open_database, transaction

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
)

_PARSED: Final = 256
"""Messages that are kept in memory as well: those of an epoch of ten auditors, and some."""

_KINDS: Final[Mapping[type[Contribution], Kind]] = {
    Tally: Kind.TALLY,
    Proposal: Kind.PROPOSAL,
    Approval: Kind.APPROVAL,
}

M = TypeVar("M", Tally, Proposal, Approval)

_KEPT_FINAL_EPOCHS: Final = 1024
"""How long the messages behind a final root are kept: the chain bounds their number, not their authors."""


class ContributionStore:
    """Authentic contribution messages in SQLite: the first two of each account, kind, epoch and turn."""

    def __init__(self, path: Path | str, swarm_id: SwarmId) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._swarm_id = swarm_id
        self._parsed: dict[ContentId, Contribution] = {}

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
            received_seconds: the time of its admission; 0 where it does not matter.
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

    def has(self, content_id: ContentId) -> bool:
        """Whether a message is stored."""
        row = self._connection.execute("SELECT 1 FROM contribution WHERE content_id = ?", (content_id,))
        return row.fetchone() is not None

    def received_seconds(self, content_id: ContentId) -> float | None:
        """Return when a message was admitted, or None if it is not stored."""
        query = "SELECT received_seconds FROM contribution WHERE content_id = ?"
        row = self._connection.execute(query, (content_id,)).fetchone()
        return float(row[0]) if row else None

    def is_posted(self, content_id: ContentId) -> bool:
        """Whether the chain's posting of its epoch names the content, as far as this node knows."""
        query = "SELECT 1 FROM posted_proposal WHERE content_id = ?"
        return self._connection.execute(query, (content_id,)).fetchone() is not None

    def has_room(self, content_id: ContentId, kind: Kind, content: Contribution) -> bool:
        """Whether one more of an account, kind, epoch and turn is stored; what the chain names always is."""
        stored = self._connection.execute(
            "SELECT COUNT(*) FROM contribution WHERE epoch = ? AND kind = ? AND account = ? AND turn = ?",
            (content.epoch, int(kind), content.account, turn_of(content)),
        ).fetchone()[0]
        return stored < CONTRIBUTIONS_PER_TURN or self.is_posted(content_id)

    def note_posted(self, epoch: int, proposal: ContentId) -> None:
        """Record the proposal that the chain's posting of an epoch names; it may not have arrived yet."""
        self._connection.execute("INSERT OR REPLACE INTO posted_proposal VALUES (?, ?)", (epoch, proposal))

    def forget(self, before_epoch: int) -> None:
        """Drop the messages of older epochs, but for a longer time not those behind a final root."""
        rows = self._connection.execute(
            "SELECT DISTINCT epoch FROM contribution WHERE epoch < ? AND epoch NOT IN"
            " (SELECT epoch FROM pruned_epoch)",
            (before_epoch,),
        ).fetchall()
        for (epoch,) in rows:
            self._prune(epoch)
        last = self._connection.execute("SELECT MAX(epoch) FROM posted_proposal").fetchone()[0]
        if last is not None:
            horizon = min(before_epoch - _KEPT_FINAL_EPOCHS, last)  # the last final epoch proves all shares
            self._parsed.clear()
            self._connection.execute("DELETE FROM contribution WHERE epoch < ?", (horizon,))
            self._connection.execute("DELETE FROM posted_proposal WHERE epoch < ?", (horizon,))
            self._connection.execute("DELETE FROM pruned_epoch WHERE epoch < ?", (horizon,))

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
        """Return the tallies that everybody has by now: received before a time, each its author's only one.

        An auditor that sends others another one has two here by then, for every node forwards two of them.
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

    def proposals(self, epoch: int) -> dict[ContentId, Proposal]:
        """Return the proposals of an epoch."""
        return dict(self._messages(epoch, Proposal))

    def approvals(self, epoch: int, proposal: ContentId) -> Sequence[Approval]:
        """Return the approvals of a proposal."""
        return [approval for _, approval in self._messages(epoch, Approval) if approval.proposal == proposal]

    def envelopes(self, since_epoch: int) -> tuple[bytes, ...]:
        """Return the messages of an epoch and later ones, for peers that ask."""
        rows = self._connection.execute(
            "SELECT envelope FROM contribution WHERE epoch >= ? ORDER BY epoch, kind", (since_epoch,)
        )
        return tuple(row[0] for row in rows)

    def _prune(self, epoch: int) -> None:
        """Keep of an epoch the proposal that the chain names, its tallies and its approvals."""
        row = self._connection.execute(
            "SELECT content_id FROM posted_proposal WHERE epoch = ?", (epoch,)
        ).fetchone()
        final = self.proposal(ContentId(row[0])) if row else None
        kept: set[ContentId] = set()
        if row is not None and final is not None:
            content_id = ContentId(row[0])
            approvals = (id_ for id_, a in self._messages(epoch, Approval) if a.proposal == content_id)
            kept = {content_id, *final.tallies, *approvals}
        stored = self._connection.execute("SELECT content_id FROM contribution WHERE epoch = ?", (epoch,))
        dropped = [(id_,) for (id_,) in stored.fetchall() if id_ not in kept]
        with transaction(self._connection):
            self._parsed.clear()
            self._connection.executemany("DELETE FROM contribution WHERE content_id = ?", dropped)
            self._connection.execute("INSERT OR REPLACE INTO pruned_epoch VALUES (?)", (epoch,))

    def _messages(self, epoch: int, type_: type[M]) -> list[tuple[ContentId, M]]:
        rows = self._connection.execute(
            "SELECT content_id FROM contribution WHERE epoch = ? AND kind = ? ORDER BY content_id",
            (epoch, int(_KINDS[type_])),
        ).fetchall()
        found = ((ContentId(id_), self._message(ContentId(id_), type_)) for (id_,) in rows)
        return [(id_, message) for id_, message in found if message is not None]

    def _message(self, content_id: ContentId, type_: type[M]) -> M | None:
        """Return a stored message of a kind; auditors look at the newest ones several times a second."""
        if isinstance(known := self._parsed.get(content_id), type_):
            return known
        row = self._connection.execute(
            "SELECT envelope FROM contribution WHERE content_id = ? AND kind = ?",
            (content_id, int(_KINDS[type_])),
        ).fetchone()
        if row is None:
            return None
        message = parse_contribution(parse_envelope(row[0], self._swarm_id))
        if len(self._parsed) >= _PARSED:
            self._parsed.clear()
        self._parsed[content_id] = message
        return message if isinstance(message, type_) else None
