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
from dataclasses import replace
from typing import Final

import trio

from sapo_client.cli.app import main
from sapo_client.node.auditing.agreement import AgreementTerms
from sapo_client.node.auditing.auditor import Auditor
from sapo_client.node.roles import Roles
from sapo_protocol import merkle, secp256k1
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.contributions import Approval, Proposal, Share, Tally, settle
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import ContentId

TWO_ROOTS: Final = "two-roots"
FALSE_ROOT: Final = "false-root"

_LOOK_SECONDS: Final = 0.5

OTHERS: Final = 2
"""Number of other auditors' tallies from which it computes the true points."""


class LyingAuditor(Auditor):
    """An auditor that publishes one false message."""

    lie = TWO_ROOTS
    min_points = 1
    _has_lied = False
    _turn = 0
    _terms: AgreementTerms

    async def run(self) -> None:
        """Follow the ledger and send false messages until cancelled."""
        self._terms = await self._join_contributions()
        while True:
            for epoch in range(max(0, self._current() - SETTLED_EPOCHS), self._current()):
                await self._lie_about(epoch)
            await trio.sleep(_LOOK_SECONDS)

    def _current(self) -> int:
        parts = self._parts
        return present_epoch(parts.manifest, parts.clock())

    async def _lie_about(self, epoch: int) -> None:
        """Send false messages about an ended epoch with enough points, in a turn that others accept."""
        parts = self._parts
        cap = parts.manifest.limits.points_per_epoch
        others = [t for t in parts.contributions.tallies(epoch).values() if t.account != parts.author.account]
        true = self._settled(others) if len(others) >= OTHERS else ()
        if self._has_lied or sum(share.points for share in true) < self.min_points:
            return
        self._has_lied = True
        auditors = self._terms.auditors(epoch)
        self._turn = (auditors.index(parts.author.account) - epoch) % len(auditors)
        if self.lie == TWO_ROOTS:
            await self._sign_two_roots(await self._count(epoch, true, cap))
        else:
            await self._post_a_false_root(await self._count(epoch, true, cap + 1))

    def _settled(self, tallies: Sequence[Tally]) -> tuple[Share, ...]:
        cap = self._parts.manifest.limits.points_per_epoch
        return settle(tallies, {}, points_per_epoch=cap, epoch_budget=self._terms.epoch_budget)

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
            await self._say(Kind.TALLY, tally)
        return tally

    async def _sign_two_roots(self, tally: Tally) -> None:
        """Propose two roots in one turn and sign both."""
        for shift in (0, 1):
            points = tuple((account, count + shift) for account, count in tally.points)
            await self._sign(*await self._propose_lie(replace(tally, points=points)))

    async def _post_a_false_root(self, tally: Tally) -> None:
        content_id, lie = await self._propose_lie(tally)
        signature = await self._sign(content_id, lie)
        await self._parts.ledger.post(lie.approval(content_id), [signature])

    async def _propose_lie(self, tally: Tally) -> tuple[ContentId, Proposal]:
        """Publish and return a proposal from its own tally alone, for a ledger without a final epoch."""
        parts, epoch = self._parts, tally.epoch
        me = tally.node, tally.account, epoch
        shares = tuple(Share(account, points, points) for account, points in tally.points)
        own = [
            id_ for id_, known in parts.contributions.tallies(epoch).items() if known.account == tally.account
        ]
        lie = Proposal(*me, tuple(own), shares, self._turn)
        content_id = await self._say(Kind.PROPOSAL, lie)
        root = lie.root(content_id)
        parts.telemetry.events.write("lie", epoch=epoch, contribution_root=root.contribution_root)
        return content_id, lie

    async def _sign(self, content_id: ContentId, proposal: Proposal) -> bytes:
        """Publish its approval of a proposal and return the signature."""
        parts = self._parts
        assert parts.account_key is not None
        digest = proposal.approval(content_id).digest(parts.manifest.ledger_domain)
        signature = secp256k1.sign(parts.account_key, digest)
        author = parts.author
        approval = Approval(
            node=author.node,
            account=author.account,
            epoch=proposal.epoch,
            proposal=content_id,
            signature=signature,
            turn=proposal.turn,
        )
        await self._say(Kind.APPROVAL, approval)
        return signature

    async def _say(self, kind: Kind, message: Tally | Proposal | Approval) -> ContentId:
        parts = self._parts
        envelope = seal(kind, parts.manifest.swarm_id, message.to_payload(), parts.author.seed)
        parts.contributions.add(envelope.content_id, kind, message, envelope.to_bytes())
        await self._publish(envelope)
        return envelope.content_id


if __name__ == "__main__":
    LyingAuditor.lie, LyingAuditor.min_points = sys.argv[1], int(sys.argv[2])
    sys.argv = ["sapo", *sys.argv[3:]]
    main(Roles(open_auditor=LyingAuditor))
