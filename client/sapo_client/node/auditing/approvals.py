"""Approvals of proposals: an auditor's own ones, and the signatures of all by turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sapo_client.node.runtime.context import Author
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Approval
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.signing.database import ApprovalMark, SigningDatabase


class Approver:
    """Signs an auditor's approvals: one root per turn of an epoch, and nothing of earlier turns.

    Args:
        account_key: the secret key of the auditor's account, 32 bytes.
        signing: records each approval before it is signed.
    """

    def __init__(
        self,
        author: Author,
        account_key: bytes,
        manifest: Manifest,
        contributions: ContributionStore,
        signing: SigningDatabase,
    ) -> None:
        self._author = author
        self._account_key = account_key
        self._manifest = manifest
        self._contributions = contributions
        self._signing = signing

    def may_sign(self, content_id: ContentId, statement: EpochApproval) -> bool:
        """Whether a statement contradicts no earlier signature of this auditor, and is not approved yet."""
        mark = self._mark(statement)
        known = self._signing.approval_mark(mark.swarm_id, mark.account)
        if known is not None and not known.allows(mark):
            return False
        return not any(
            (approval.account, approval.turn) == (self._author.account, statement.turn)
            for approval in self._contributions.approvals(statement.root.epoch, content_id)
        )

    def sign(self, content_id: ContentId, statement: EpochApproval) -> Approval | None:
        """Record and return the approval of a proposal; None if an earlier signature contradicts it."""
        if not self._signing.approve(self._mark(statement)):
            return None
        return Approval(
            node=self._author.node,
            account=self._author.account,
            epoch=statement.root.epoch,
            proposal=content_id,
            signature=secp256k1.sign(self._account_key, statement.digest(self._manifest.ledger_domain)),
            turn=statement.turn,
        )

    def _mark(self, statement: EpochApproval) -> ApprovalMark:
        return ApprovalMark(
            self._manifest.swarm_id,
            self._author.account,
            statement.root.epoch,
            statement.turn,
            statement.root.digest(self._manifest.ledger_domain),
        )


def is_genuine(approval: Approval, root: EpochRoot, domain: Domain) -> bool:
    """Whether the account of an approval has signed a root in its turn."""
    digest = EpochApproval(approval.turn, root).digest(domain)
    return _signer(digest, approval.signature) == approval.account


def signatures_by_turn(
    contributions: ContributionStore, content_id: ContentId, root: EpochRoot, domain: Domain
) -> Mapping[int, Mapping[Account, bytes]]:
    """Return the valid signatures of a proposal's root, by turn in ascending order, and by auditor."""
    found: dict[int, dict[Account, bytes]] = {}
    for approval in contributions.approvals(root.epoch, content_id):
        if is_genuine(approval, root, domain):
            found.setdefault(approval.turn, {})[approval.account] = approval.signature
    return dict(sorted(found.items()))


@lru_cache(maxsize=4096)
def _signer(digest: Digest, signature: bytes) -> Account | None:
    return secp256k1.recover(digest, signature)
