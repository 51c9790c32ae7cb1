"""Approvals of proposals: an auditor's own ones, and the signatures of all by turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.runtime.context import Author
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Approval
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.signing.database import ApprovalMark, SigningDatabase

_LOG = logging.getLogger(__name__)


class Approver:
    """Signs an auditor's approvals: one root per turn of an epoch, and nothing of earlier turns.

    Once it has heard an approval of its account that its signing database does not hold, it signs nothing
    until it is restarted: a second process could sign another root in the same turn, which costs the bond.
    It has to hear that before it signs itself, so its first approval waits, for a time that nobody knows:
    whoever shows two processes two proposals cannot make both sign at the same moment.

    Args:
        account_key: the secret key of the auditor's account, 32 bytes.
        signing: records each approval before it is signed.
        machine: what the account approved on this machine with any data directory; None if that is not kept.
        wait_seconds: how long after a proposal this process approves it, until it has approved one.

    Attributes:
        elsewhere: an approval of this account that another process has signed, as far as one was heard.
    """

    def __init__(
        self,
        author: Author,
        account_key: bytes,
        manifest: Manifest,
        contributions: ContributionStore,
        signing: SigningDatabase,
        machine: MachineApprovals | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self.elsewhere: Approval | None = None
        self._wait_seconds = wait_seconds
        self._waiting_since: dict[tuple[ContentId, int], float] = {}
        self._machine = machine
        self._author = author
        self._account_key = account_key
        self._manifest = manifest
        self._contributions = contributions
        self._signing = signing

    def listen(self, epoch: int) -> None:
        """Search the approvals of an epoch for one that another process has signed as this auditor."""
        if self.elsewhere is not None:
            return
        known = self._signing.approval_mark(self._manifest.swarm_id, self._author.account)
        height = (-1, 0) if known is None else known.height
        own = (each for each in self._contributions.approvals(epoch) if each.account == self._author.account)
        self.elsewhere = next((each for each in own if (epoch, each.turn) > height), None)
        if self.elsewhere is not None:
            _LOG.error(
                "another process approves as this auditor (epoch %d, turn %d), and two roots in one turn cost"
                " the bond, so this one approves nothing more: stop the other one and restart this one three"
                " epochs later, or import the other one's history with: sapo keys signing import FILE",
                epoch,
                self.elsewhere.turn,
            )

    def may_sign(self, content_id: ContentId, statement: EpochApproval) -> bool:
        """Whether a statement contradicts no earlier signature of this auditor, and is not approved yet."""
        if self.elsewhere is not None:
            return False
        mark = self._mark(statement)
        known = self._signing.approval_mark(mark.swarm_id, mark.account)
        if known is not None and not known.allows(mark):
            return False
        return not any(
            (approval.account, approval.turn) == (self._author.account, statement.turn)
            for approval in self._contributions.approvals(statement.root.epoch, content_id)
        )

    def sign(self, content_id: ContentId, statement: EpochApproval, now_seconds: float) -> Approval | None:
        """Record and return the approval of a proposal; None if it waits or an earlier one contradicts it."""
        if self._waits(content_id, statement.turn, now_seconds):
            return None
        mark = self._mark(statement)
        if not self._signing.approve(mark) or not (self._machine is None or self._machine.approve(mark)):
            return None
        self._wait_seconds = 0.0
        return Approval(
            node=self._author.node,
            account=self._author.account,
            epoch=statement.root.epoch,
            proposal=content_id,
            signature=secp256k1.sign(self._account_key, statement.digest(self._manifest.ledger_domain)),
            turn=statement.turn,
        )

    def _waits(self, content_id: ContentId, turn: int, now_seconds: float) -> bool:
        if not self._wait_seconds:
            return False
        since_seconds = self._waiting_since.setdefault((content_id, turn), now_seconds)
        return now_seconds < since_seconds + self._wait_seconds

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
