"""`python lying_auditor.py LIE POINTS join ...`: `sapo join` with an auditor that lies about one epoch.

It receives, verifies, forwards and answers as every node does. About the first epoch in which at least so
many points were earned it tells one of two lies, and none later:

two-roots    it counts too much for itself, signs what the others propose, and signs a root of its own count
false-root   it posts, under its signature alone, a root that pays it more than the cap

It does not run the watchtower: by challenging itself it would save half of its bond.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from sapo_client.cli.app import main
from sapo_client.node.auditing.auditor import Auditor
from sapo_client.node.roles import Roles
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, Tally, settle
from sapo_protocol.envelope import Kind
from sapo_protocol.identifiers import ContentId

TWO_ROOTS: Final = "two-roots"
FALSE_ROOT: Final = "false-root"

OTHERS: Final = 2
"""Number of other auditors' tallies from which it computes the true points."""


class LyingAuditor(Auditor):
    """An auditor that lies once."""

    lie = TWO_ROOTS
    least_points = 1
    _has_lied = False

    async def run(self) -> None:
        """Follow and lie until cancelled."""
        await self._join_contributions()
        await self._audit()

    async def _advance(self, epoch: int) -> bool:
        """Lie about an ended epoch if it has enough points; return whether the epoch is done."""
        parts = self._parts
        if self._has_lied:
            return True
        cap = parts.manifest.limits.points_per_epoch
        others = [t for t in parts.contributions.tallies(epoch).values() if t.account != parts.author.account]
        true = self._settled(others) if len(others) >= OTHERS else ()
        if sum(share.points for share in true) < self.least_points:
            return False
        if self.lie == TWO_ROOTS:
            self._has_lied = await self._sign_two_roots(await self._count(epoch, true, cap))
        else:
            await self._post_a_false_root(await self._count(epoch, true, cap + 1))
            self._has_lied = True
        return self._has_lied

    def _settled(self, tallies: Sequence[Tally]) -> tuple[Share, ...]:
        cap = self._parts.manifest.limits.points_per_epoch
        return settle(tallies, {}, points_per_epoch=cap, epoch_budget=self._epoch_budget)

    async def _count(self, epoch: int, true: Sequence[Share], own: int) -> Tally:
        """Return its tally with the others' true points and its own false ones; publish it once."""
        parts = self._parts
        me = parts.author.account
        points = sorted([*((share.account, share.points) for share in true), (me, own)])
        tally = Tally(
            node=parts.author.node,
            account=me,
            epoch=epoch,
            points=tuple(points),
            evidence_root=merkle.EMPTY_ROOT,
        )
        if not any(known.account == me for known in parts.contributions.tallies(epoch).values()):
            await self._publish(Kind.TALLY, tally)
        return tally

    async def _sign_two_roots(self, tally: Tally) -> bool:
        """Sign the true root as soon as it is proposed, and then a false one; return whether that is done."""
        if not (proposals := self._parts.contributions.proposals(tally.epoch)):
            return False
        for truth in proposals.items():
            await self._sign(*truth)
        await self._sign(*await self._propose_lie(tally))
        return True

    async def _post_a_false_root(self, tally: Tally) -> None:
        content_id, lie = await self._propose_lie(tally)
        signature = await self._sign(content_id, lie)
        await self._parts.ledger.post(lie.root(content_id), [signature])

    async def _propose_lie(self, tally: Tally) -> tuple[ContentId, Proposal]:
        """Publish and return a proposal from its own tally alone, for a ledger without a final epoch."""
        parts, epoch = self._parts, tally.epoch
        me = tally.node, tally.account, epoch
        shares = tuple(Share(account, points, points) for account, points in tally.points)
        own = [
            id_ for id_, known in parts.contributions.tallies(epoch).items() if known.account == tally.account
        ]
        lie = Proposal(*me, tuple(own), shares)
        content_id = await self._publish(Kind.PROPOSAL, lie)
        root = lie.root(content_id)
        parts.telemetry.events.write("lie", epoch=epoch, contribution_root=root.contribution_root)
        return content_id, lie

    async def _sign(self, content_id: ContentId, proposal: Proposal) -> bytes:
        """Publish its approval of a proposal and return the signature."""
        parts = self._parts
        assert parts.account_key is not None
        digest = proposal.root(content_id).digest(parts.manifest.ledger_domain)
        signature = secp256k1.sign(parts.account_key, digest)
        author = parts.author
        approval = Approval(
            node=author.node,
            account=author.account,
            epoch=proposal.epoch,
            proposal=content_id,
            signature=signature,
        )
        await self._publish(Kind.APPROVAL, approval)
        return signature


if __name__ == "__main__":
    LyingAuditor.lie, LyingAuditor.least_points = sys.argv[1], int(sys.argv[2])
    sys.argv = ["sapo", *sys.argv[3:]]
    main(Roles(open_auditor=LyingAuditor))
