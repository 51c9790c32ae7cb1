"""A testnet's auditor that publishes false tallies late: it gains nothing, and delays no epoch.

It waits for a proposal of an epoch, so that the others have counted without it, and only then publishes its
tally: the cap for itself, and no points for other accounts. It proposes and approves nothing. In every other
respect its node is honest.
"""

from __future__ import annotations

from sapo_client.node.auditing.agreement import Agreement
from sapo_client.node.auditing.auditor import Auditor
from sapo_protocol import merkle


class LateAuditor(Auditor):
    """An auditor that publishes a false tally after the first proposal of every epoch."""

    async def _advance(self, agreement: Agreement) -> bool:
        parts = self._parts
        record = await parts.ledger.last_record()
        me, cap = parts.author.account, parts.manifest.limits.points_per_epoch
        for epoch in agreement.unsettled(parts.clock(), record.root if record else None):
            if agreement.has_tallied(epoch) or not parts.contributions.proposals(epoch):
                continue
            lie = agreement.tally(epoch, ((me, cap),), merkle.EMPTY_ROOT, parts.clock())
            await self._publish(lie)
            parts.telemetry.events.write("lie", epoch=epoch, points={str(me): cap})
        return False
