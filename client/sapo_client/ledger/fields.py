"""Records out of the values that the ledger's contract returns."""

from typing import Any

from sapo_client.ledger.records import Announcement, EpochRecord
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.auditors import Replacement


def announcement(fields: Any) -> Announcement:
    """Return an announcement out of the contract's ``Succession``."""
    number, epoch, successor, leaving, entering = fields
    leaves, enters = Account.from_hex(leaving), Account.from_hex(entering)
    return Announcement(
        number,
        epoch,
        Digest(successor) if any(successor) else None,
        Replacement(epoch, leaves, enters) if any(enters) else None,
    )


def record(fields: Any) -> EpochRecord | None:
    """Return the live posting out of the contract's ``live``, if there is one."""
    (epoch, base, contribution, cumulative, total, archive), posted_at, signers = fields
    if posted_at == 0:
        return None
    root = EpochRoot(
        epoch=epoch,
        base_root=Digest(base),
        contribution_root=Digest(contribution),
        cumulative_root=Digest(cumulative),
        total=total,
        archive_digest=Digest(archive),
    )
    return EpochRecord(root, posted_at, signers)
