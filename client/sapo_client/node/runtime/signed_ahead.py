"""Detection of a data directory that has signed in a future epoch, because its clock was far ahead.

The signing watermark covers only the newest epoch; in every earlier epoch a second content for a signed slot
would be possible. So the account signs nothing until that epoch begins.
"""

from __future__ import annotations

from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_verification.signing.database import SigningDatabase


def epoch_signed_ahead(
    signing: SigningDatabase, manifest: Manifest, account: Account, now_seconds: float
) -> int | None:
    """Return the future epoch before which an account must not sign here; None if there is none."""
    mark = signing.mark(manifest.swarm_id, account)
    now = present_epoch(manifest, now_seconds)
    return mark.epoch if mark is not None and mark.epoch > now else None
