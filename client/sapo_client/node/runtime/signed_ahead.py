"""Whether a data directory signed in an epoch that is still to come, as after a clock that was far ahead.

Its mark of signed slots only rises, and knows the newest epoch alone: in every earlier one, slots may have
been signed that a second content would contradict. So the account signs nothing until that epoch is here.
"""

from __future__ import annotations

from sapo_protocol.epochs import epoch_at
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_verification.signing.database import SigningDatabase


def epoch_signed_ahead(
    signing: SigningDatabase, manifest: Manifest, account: Account, now_seconds: float
) -> int | None:
    """Return the epoch before which an account may sign nothing here; none if that is not a later one."""
    mark = signing.mark(manifest.swarm_id, account)
    now = epoch_at(manifest, max(now_seconds, manifest.genesis_seconds))
    return mark.epoch if mark is not None and mark.epoch > now else None
