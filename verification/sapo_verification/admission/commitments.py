"""Admission (stages 1 to 7) and storage of commitments.

They are kept in SQLite as received, at most two per account and epoch: if there are two, neither is valid.
"""

from typing import Final

from sapo_protocol.audits.commitment import Commitment, open_commitment, require_in_time
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.rollouts import TermsInForce
from sapo_verification.islands import TopicIslands
from sapo_verification.store import Source, StoreSchema, open_database

KEPT_EPOCHS: Final = 2
"""An epoch is tallied before the next one has ended."""

_MAX: Final = 2
"""Commitments kept of an account and epoch: the second one proves that neither is valid."""

_SCHEMA = StoreSchema(
    "commitments",
    """
    CREATE TABLE IF NOT EXISTS commitment (
        epoch INTEGER NOT NULL, account BLOB NOT NULL, content_id BLOB NOT NULL, envelope BLOB NOT NULL,
        PRIMARY KEY (epoch, account, content_id)
    ) WITHOUT ROWID;
    """,
)


class CommitmentStore:
    """Commitments by epoch and account; only accounts with a certificate can have one, which bounds them.

    Args:
        terms: the limits and families of each epoch, as far as this node knows.
    """

    def __init__(
        self,
        manifest: Manifest,
        certificates: CertificateStore,
        path: Source = ":memory:",
        terms: TermsInForce | None = None,
    ) -> None:
        self._terms = terms or TermsInForce(manifest)
        self._manifest = manifest
        self._certificates = certificates
        self._connection = open_database(path, _SCHEMA)

    def admit(self, data: bytes, now_seconds: float, topic_islands: TopicIslands = None) -> Commitment:
        """Store the commitment in a message and return it.

        Args:
            topic_islands: islands of the topic on which it was received; None accepts any island.

        Raises:
            RemoteProtocolError: with the reason that decides the verdict.
        """
        envelope = parse_envelope(data, self._manifest.swarm_id, also=Kind.COMMITMENT)
        commitment = open_commitment(envelope)
        account, epoch = commitment.account, commitment.epoch
        require_in_time(commitment, self._manifest, now_seconds)
        known = self._ids(account, epoch)
        if envelope.content_id in known:
            raise RemoteProtocolError(Rule.COMMITMENT_NEW, "the commitment is known")
        self._certificates.islands.require_rollout(account, epoch, topic_islands)
        self._certificates.standing.require(account, epoch)
        self._certificates.require(commitment.node, account, now_seconds)
        self._terms.require_slot(epoch, commitment.slots[-1])
        if not envelope.is_signed_by(commitment.node):
            raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
        if len(known) >= _MAX:
            raise RemoteProtocolError(Rule.COMMITMENT_ROOM, "two of its account and epoch are known")
        row = (epoch, account, envelope.content_id, data)
        self._connection.execute("INSERT INTO commitment VALUES (?, ?, ?, ?)", row)
        return commitment

    def of(self, account: Account, epoch: int) -> Commitment | None:
        """Return the commitment of an account in an epoch; None if there is none, or if there are two."""
        message = self.message(account, epoch)
        return None if message is None else self._read(message)

    def message(self, account: Account, epoch: int) -> bytes | None:
        """Return the message with the account's commitment of an epoch, as received; None as for ``of``."""
        query = "SELECT envelope FROM commitment WHERE epoch = ? AND account = ?"
        rows = self._connection.execute(query, (epoch, account)).fetchall()
        return bytes(rows[0][0]) if len(rows) == 1 else None

    def accounts(self, epoch: int) -> tuple[Account, ...]:
        """Return the accounts with exactly one commitment of an epoch, ascending."""
        query = "SELECT account FROM commitment WHERE epoch = ? GROUP BY account HAVING COUNT(*) = 1"
        return tuple(sorted(Account(row[0]) for row in self._connection.execute(query, (epoch,))))

    def has(self, account: Account, epoch: int) -> bool:
        """Whether any commitment of an account and epoch is known."""
        return bool(self._ids(account, epoch))

    def forget(self, epoch: int) -> None:
        """Delete the commitments that are not needed any more in an epoch."""
        self._connection.execute("DELETE FROM commitment WHERE epoch < ?", (epoch - KEPT_EPOCHS,))

    def _ids(self, account: Account, epoch: int) -> frozenset[bytes]:
        query = "SELECT content_id FROM commitment WHERE epoch = ? AND account = ?"
        return frozenset(row[0] for row in self._connection.execute(query, (epoch, account)))

    def _read(self, data: bytes) -> Commitment:
        return open_commitment(parse_envelope(data, self._manifest.swarm_id, also=Kind.COMMITMENT))
