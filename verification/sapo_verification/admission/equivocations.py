"""The proofs of equivocation that this node holds: each is validated here and counted once.

A proof from another node is hard evidence, since both of its signatures are checked here. One proof is kept
per account and epoch: a second one would change nothing, and would let an equivocator flood the store and the
network. They are kept in SQLite as received and admitted again at the next
start; their penalty is kept by ``Reputation``, which counts each epoch of an account once.
"""

from collections import OrderedDict
from typing import Final

from sapo_protocol.constants import PROOF_EPOCHS
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.equivocation import EquivocationProof, open_proof, prove_equivocation, require_timely
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.rollouts import TermsInForce
from sapo_verification.islands import TopicIslands
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.store import Source, StoreSchema, open_database

MAX_PROOFS: Final = 1024
"""Proofs kept, about 1 MiB at the nano level; beyond it the oldest is dropped."""

_SCHEMA = StoreSchema(
    "equivocations",
    """
    CREATE TABLE IF NOT EXISTS equivocation (
        epoch INTEGER NOT NULL, account BLOB NOT NULL, envelope BLOB NOT NULL, PRIMARY KEY (epoch, account)
    ) WITHOUT ROWID;
    """,
)

_Key = tuple[int, Account]


class ProofStore:
    """Proofs by epoch and account, bounded in number; no other class turns a proof into hard evidence.

    Args:
        own: this node's account; a proof against it changes no reputation here.
        terms: the limits and families of each epoch, as far as this node knows.
    """

    def __init__(
        self,
        manifest: Manifest,
        certificates: CertificateStore,
        reputation: Reputation,
        own: Account,
        path: Source = ":memory:",
        max_proofs: int = MAX_PROOFS,
        terms: TermsInForce | None = None,
    ) -> None:
        self._terms = terms or TermsInForce(manifest)
        self._manifest = manifest
        self._certificates = certificates
        self._reputation = reputation
        self._own = own
        self._max_proofs = max_proofs
        self._messages: OrderedDict[_Key, bytes] = OrderedDict()
        self._connection = open_database(path, _SCHEMA)

    def __len__(self) -> int:
        return len(self._messages)

    def restore(self, now_seconds: float) -> int:
        """Admit the stored proofs again; return how many are still valid. The others are deleted."""
        rows = self._connection.execute("SELECT epoch, account, envelope FROM equivocation ORDER BY epoch")
        for epoch, account, message in rows.fetchall():
            try:
                self.admit(message, now_seconds)
            except RemoteProtocolError:
                self._delete((epoch, Account(account)))
        return len(self)

    def admit(self, data: bytes, now_seconds: float, topic_islands: TopicIslands = None) -> EquivocationProof:
        """Store the proof in a message, record it in its account's reputation, and return it.

        Args:
            topic_islands: islands of the topic on which it was received; None accepts any island.

        Raises:
            RemoteProtocolError: with the reason that decides the verdict.
        """
        proof = open_proof(parse_envelope(data, self._manifest.swarm_id))
        self._require(proof, now_seconds, topic_islands)
        self._keep(proof, data)
        self._count(proof)
        return proof

    def prove(self, one: bytes, other: bytes, now_seconds: float) -> bytes | None:
        """Make a proof of two contents that this node received itself; return it as a message.

        None if there is nothing to send: the proof is known, is against the own account, or does not fit into
        one message (two groups of full size). In the last case the evidence is recorded all the same.

        Raises:
            LocalProtocolError: the two messages prove nothing.
            RemoteProtocolError: a rule makes the proof invalid now, for example an expired certificate.
        """
        proof = prove_equivocation(one, other, self._manifest.swarm_id)
        if proof.account == self._own or _key(proof) in self._messages:
            return None
        self._require(proof, now_seconds)
        try:
            message = proof.to_envelope().to_bytes()
        except LocalProtocolError:
            self._count(proof)
            return None
        self._keep(proof, message)
        self._count(proof)
        return message

    def messages(self) -> tuple[bytes, ...]:
        """Return the messages of all proofs, as received, for peers that ask."""
        return tuple(self._messages.values())

    def held(self) -> dict[tuple[int, Account], ContentId]:
        """Return the content ids of all proofs by epoch and account, in the order of reception."""
        swarm = self._manifest.swarm_id
        return {key: parse_envelope(message, swarm).content_id for key, message in self._messages.items()}

    def forget(self, epoch: int) -> None:
        """Drop the proofs that are too old to be admitted in an epoch."""
        for key in [key for key in self._messages if key[0] < epoch - PROOF_EPOCHS]:
            self._delete(key)

    def _require(
        self, proof: EquivocationProof, now_seconds: float, topic_islands: TopicIslands = None
    ) -> None:
        require_timely(proof, self._manifest, now_seconds)
        if _key(proof) in self._messages:
            raise RemoteProtocolError(Rule.PROOF_NEW, "the equivocation is known")
        epoch = proof.rollouts[0].epoch
        self._certificates.islands.require_proof(proof.account, epoch, now_seconds, topic_islands)
        for rollout in proof.rollouts:
            self._certificates.require_of_proof(rollout.node, rollout.account, now_seconds)
        slot = proof.rollouts[0].slot
        self._terms.require_slot(epoch, slot)
        proof.require_signatures()

    def _count(self, proof: EquivocationProof) -> None:
        if proof.account == self._own:
            return
        epoch, account = _key(proof)
        self._reputation.record_equivocation(account, proof.rollouts[0].family, epoch)

    def _keep(self, proof: EquivocationProof, message: bytes) -> None:
        key = _key(proof)
        self._messages[key] = message
        self._connection.execute("INSERT OR REPLACE INTO equivocation VALUES (?, ?, ?)", (*key, message))
        if len(self._messages) > self._max_proofs:
            self._delete(next(iter(self._messages)))

    def _delete(self, key: _Key) -> None:
        self._messages.pop(key, None)
        self._connection.execute("DELETE FROM equivocation WHERE epoch = ? AND account = ?", key)


def _key(proof: EquivocationProof) -> _Key:
    return proof.rollouts[0].epoch, proof.account
