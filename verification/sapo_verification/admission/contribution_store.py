"""Store of contribution messages: tallies, proposals and approvals, as received.

Any holder of these messages can recompute an epoch's root; an account needs them to prove its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Tally,
    parse_approval,
    parse_proposal,
    parse_tally,
)
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.identifiers import ContentId, SwarmId
from sapo_verification.admission.contributions import Contribution
from sapo_verification.store import StoreSchema, open_database

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
)


class ContributionStore:
    """Authentic contribution messages in SQLite, the first of each author, kind and epoch."""

    def __init__(self, path: Path | str, swarm_id: SwarmId) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._connection.execute("PRAGMA synchronous=FULL")  # a power cut must not forget an approval
        self._swarm_id = swarm_id

    def add(self, content_id: ContentId, kind: Kind, message: Contribution, envelope: bytes) -> None:
        """Store an authentic message."""
        self._connection.execute(
            "INSERT OR IGNORE INTO contribution VALUES (?, ?, ?, ?, ?)",
            (content_id, int(kind), message.epoch, message.account, envelope),
        )

    def has(self, content_id: ContentId) -> bool:
        """Whether a message is stored."""
        row = self._connection.execute("SELECT 1 FROM contribution WHERE content_id = ?", (content_id,))
        return row.fetchone() is not None

    def tallies(self, epoch: int) -> dict[ContentId, Tally]:
        """Return the tallies of an epoch, one per auditor: of two, the one with the smaller id."""
        found: dict[ContentId, Tally] = {}
        authors: set[bytes] = set()
        for content_id, payload in self._payloads(epoch, Kind.TALLY):
            tally = parse_tally(payload)
            if tally.account not in authors:
                authors.add(tally.account)
                found[content_id] = tally
        return found

    def tally(self, content_id: ContentId) -> Tally | None:
        """Return one tally by its id."""
        payload = self._payload(content_id, Kind.TALLY)
        return parse_tally(payload) if payload else None

    def proposal(self, content_id: ContentId) -> Proposal | None:
        """Return one proposal by its id."""
        payload = self._payload(content_id, Kind.PROPOSAL)
        return parse_proposal(payload) if payload else None

    def proposals(self, epoch: int) -> dict[ContentId, Proposal]:
        """Return the proposals of an epoch."""
        return {id_: parse_proposal(payload) for id_, payload in self._payloads(epoch, Kind.PROPOSAL)}

    def approvals(self, epoch: int, proposal: ContentId) -> Sequence[Approval]:
        """Return the approvals of a proposal."""
        approvals = (parse_approval(payload) for _, payload in self._payloads(epoch, Kind.APPROVAL))
        return [approval for approval in approvals if approval.proposal == proposal]

    def envelopes(self, since_epoch: int) -> tuple[bytes, ...]:
        """Return the messages of an epoch and later ones, for peers that ask."""
        rows = self._connection.execute(
            "SELECT envelope FROM contribution WHERE epoch >= ? ORDER BY epoch, kind", (since_epoch,)
        )
        return tuple(row[0] for row in rows)

    def approve(self, epoch: int, proposal: ContentId) -> bool:
        """Record that this node signs a proposal; return False if it has signed another one of the epoch."""
        self._connection.execute("INSERT OR IGNORE INTO approved VALUES (?, ?)", (epoch, proposal))
        row = self._connection.execute("SELECT proposal FROM approved WHERE epoch = ?", (epoch,)).fetchone()
        return bytes(row[0]) == proposal

    def has_approved(self, epoch: int) -> bool:
        """Whether this node has signed a proposal of the epoch."""
        row = self._connection.execute("SELECT 1 FROM approved WHERE epoch = ?", (epoch,)).fetchone()
        return row is not None

    def _payloads(self, epoch: int, kind: Kind) -> list[tuple[ContentId, bytes]]:
        rows = self._connection.execute(
            "SELECT content_id, envelope FROM contribution WHERE epoch = ? AND kind = ? ORDER BY content_id",
            (epoch, int(kind)),
        ).fetchall()
        return [(ContentId(id_), parse_envelope(data, self._swarm_id).payload) for id_, data in rows]

    def _payload(self, content_id: ContentId, kind: Kind) -> bytes | None:
        row = self._connection.execute(
            "SELECT envelope FROM contribution WHERE content_id = ? AND kind = ?", (content_id, int(kind))
        ).fetchone()
        return parse_envelope(row[0], self._swarm_id).payload if row else None
