"""The auditor: counts an epoch's points, proposes or approves its root, and posts it.

After an epoch has ended, and a grace period for messages on their way:

1. every auditor publishes its tally;
2. the auditor whose turn it is proposes the settlement of the tallies it holds; if nothing is
   posted in time, the next one may propose;
3. every auditor that holds the same tallies and gets the same settlement approves, once per epoch;
4. an auditor that holds a quorum of approvals posts the root, the proposer first.

While a posting is live nothing else is proposed, because the next proposal builds on its result. Nodes that
are no auditors only store the contributions, which prove their shares, and watch the postings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import trio

from sapo_client.node.auditing.settlement import (
    cumulative_points,
    grace_seconds,
    is_settlement,
    turn_to_propose,
)
from sapo_client.node.auditing.watchtower import LedgerWatchtower, WatchtowerParts
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.context import Author
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, Tally, settle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_at, epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.topics import contributions_topic
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.engine import Engine

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient

_LOOK_SECONDS: Final = 0.5

_FOLLOW_SECONDS: Final = 2.0
"""Interval at which the chain is asked for a new record."""

_SERVED_EPOCHS: Final = 16
"""Epochs whose contributions a new peer is sent; a claim needs those of the last one."""


@dataclass(frozen=True, slots=True)
class AuditorParts:
    """The parts that an auditor works with; without an account key it only follows."""

    author: Author
    account_key: bytes | None
    transport: Transport
    ledger: LedgerClient
    gossip: GossipHandlers
    engine: Engine
    telemetry: Telemetry
    clock: Clock

    @property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.engine.manifest

    @property
    def contributions(self) -> ContributionStore:
        """The contributions of all auditors."""
        return self.engine.contributions

    def watchtower(self) -> LedgerWatchtower:
        """Return the watchtower over the same ledger and contributions."""
        return LedgerWatchtower(
            WatchtowerParts(
                manifest=self.manifest,
                account=self.author.account,
                ledger=self.ledger,
                contributions=self.contributions,
                events=self.telemetry.events,
                clock=self.clock,
            )
        )


class AuditorRole(Protocol):
    """A node's part in the settlement of epochs."""

    @property
    def points(self) -> int:
        """Points of this account as of the last final epoch."""

    async def run(self) -> None:
        """Take part until cancelled; may be run again after that."""


class Auditor:
    """Service that follows the settlement of epochs, and takes part in it if its account is an auditor's."""

    def __init__(self, parts: AuditorParts) -> None:
        self._parts = parts
        self._auditors: tuple[Account, ...] = ()
        self._quorum = 0
        self._epoch_budget = 0
        self._done = -1
        self._followed = -1
        self._started_seconds = -math.inf
        self.points = 0

    async def run(self) -> None:
        """Follow and audit until cancelled; may be run again after that."""
        parts = self._parts
        self._started_seconds = trio.current_time()
        await self._join_contributions()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(parts.watchtower().run)
            if parts.account_key is not None and parts.author.account in self._auditors:
                nursery.start_soon(self._audit)

    async def _join_contributions(self) -> None:
        """Learn the ledger's terms, then exchange contributions with peers."""
        parts = self._parts
        self._epoch_budget = await parts.ledger.epoch_budget()
        self._auditors, self._quorum = await parts.ledger.auditors()
        parts.engine.set_auditors(self._auditors)
        parts.gossip.open_contributions(self._recent)

    async def _follow(self) -> None:
        """Follow the final records on the chain and this account's points in them."""
        parts = self._parts
        while True:
            record = await parts.ledger.last_record()
            if record is not None and record.root.epoch > self._followed:
                self._followed = record.root.epoch
                self._report_final(record.root)
            if record is not None:  # every time: its proposal may arrive long after it
                shares = cumulative_points(parts.contributions, record.root) or {}
                self.points = shares.get(parts.author.account, self.points)
            await trio.sleep(_FOLLOW_SECONDS)

    def _recent(self) -> tuple[bytes, ...]:
        return self._parts.contributions.envelopes(since_epoch=max(0, self._followed - _SERVED_EPOCHS))

    async def _audit(self) -> None:
        while True:
            parts = self._parts
            ended = epoch_at(parts.manifest, max(parts.clock(), parts.manifest.genesis_seconds)) - 1
            if ended > self._done and await self._advance(ended):
                self._done = ended
            await trio.sleep(_LOOK_SECONDS)

    async def _advance(self, epoch: int) -> bool:
        """Take the next step for an ended epoch; return whether it is final."""
        parts = self._parts
        age_seconds = parts.clock() - epoch_start_seconds(parts.manifest, epoch + 1)
        if age_seconds < grace_seconds(parts.manifest):
            return False
        if not any(
            tally.account == parts.author.account for tally in parts.contributions.tallies(epoch).values()
        ):
            if not self._may_count(epoch, age_seconds):
                return False
            await self._publish_tally(epoch)
        record = await parts.ledger.last_record()
        last = record.root if record else None
        if last is not None and last.epoch >= epoch:
            return True
        if await parts.ledger.live_record() is not None:
            return False
        turn, is_open = turn_to_propose(parts.manifest, age_seconds)
        if turn >= 0:  # earlier, a proposal could be approved before the tallies that contradict it arrive
            for content_id, proposal in parts.contributions.proposals(epoch).items():
                await self._approve(content_id, proposal, last)
        if is_open and self._is_turn(epoch, turn):
            await self._propose(epoch, last)
        await self._post(epoch, turn)
        return False

    def _may_count(self, epoch: int, age_seconds: float) -> bool:
        """Whether all that was admitted of an ended epoch is audited, or the others have waited long enough.

        A restarted auditor audits again what it had not finished; its tally waits for that as well.
        """
        patience = grace_seconds(self._parts.manifest) / 2
        waited = min(
            age_seconds - grace_seconds(self._parts.manifest), trio.current_time() - self._started_seconds
        )
        return waited >= patience or not self._parts.engine.audits.unaudited(epoch)

    def _is_turn(self, epoch: int, turn: int) -> bool:
        return self._auditors[(epoch + turn) % len(self._auditors)] == self._parts.author.account

    async def _publish_tally(self, epoch: int) -> None:
        parts = self._parts
        live = {account for account, _ in await parts.ledger.live_accounts()}
        tally = Tally(
            node=parts.author.node,
            account=parts.author.account,
            epoch=epoch,
            points=parts.engine.count.points(epoch, live, parts.manifest.limits.points_per_epoch),
            evidence_root=parts.engine.count.evidence_root(epoch),
        )
        await self._publish(Kind.TALLY, tally)
        points = {str(account): count for account, count in tally.points}
        parts.telemetry.events.write("tally", epoch=epoch, points=points)

    async def _propose(self, epoch: int, last: EpochRoot | None) -> None:
        parts = self._parts
        tallies = parts.contributions.tallies(epoch)
        own = [p for p in parts.contributions.proposals(epoch).values() if p.account == parts.author.account]
        if own or parts.contributions.has_approved(epoch) or len(tallies) < self._quorum:
            return
        if (previous := cumulative_points(parts.contributions, last)) is None:
            parts.telemetry.events.write(
                "ledger_error", text="this node does not hold the last final settlement"
            )
            return
        shares = self._settle(tallies, previous)
        if not any(share.points for share in shares):
            return  # no account earned points: there is nothing to post
        proposal = Proposal(
            node=parts.author.node,
            account=parts.author.account,
            epoch=epoch,
            tallies=tuple(sorted(tallies)),
            shares=shares,
        )
        content_id = await self._publish(Kind.PROPOSAL, proposal)
        total = sum(share.points for share in shares)
        parts.telemetry.events.write("proposal", epoch=epoch, content_id=content_id, total=total)
        await self._approve(content_id, proposal, last)

    async def _approve(self, content_id: ContentId, proposal: Proposal, last: EpochRoot | None) -> None:
        """Sign a proposal that this node can recompute, and no second one in an epoch."""
        parts = self._parts
        approvals = parts.contributions.approvals(proposal.epoch, content_id)
        if any(approval.account == parts.author.account for approval in approvals):
            return
        if not self._agrees(proposal, last) or not parts.contributions.approve(proposal.epoch, content_id):
            return
        digest = proposal.root(content_id).digest(parts.manifest.ledger_domain)
        assert parts.account_key is not None
        signature = secp256k1.sign(parts.account_key, digest)
        approval = Approval(
            node=parts.author.node,
            account=parts.author.account,
            epoch=proposal.epoch,
            proposal=content_id,
            signature=signature,
        )
        await self._publish(Kind.APPROVAL, approval)
        parts.telemetry.events.write(
            "approval", epoch=proposal.epoch, proposal=content_id, by=parts.author.account
        )

    def _agrees(self, proposal: Proposal, last: EpochRoot | None) -> bool:
        parts = self._parts
        settles = is_settlement(
            parts.contributions,
            proposal,
            last,
            quorum=self._quorum,
            points_cap=parts.manifest.limits.points_per_epoch,
            epoch_budget=self._epoch_budget,
        )
        return settles and self._grants_what_all_tallies_grant(proposal)

    def _grants_what_all_tallies_grant(self, proposal: Proposal) -> bool:
        """Whether a proposal grants the same points as all tallies held here.

        A proposer may not have every tally in time. But it must not choose among them: with two tallies, one
        of them false, the lower median takes away whatever the author of the false one wants.
        """
        tallies = self._parts.contributions.tallies(proposal.epoch)
        expected = {share.account: share.points for share in self._settle(tallies, {})}
        granted = {share.account: share.points for share in proposal.shares if share.points}
        return granted == expected

    def _settle(
        self, tallies: Mapping[ContentId, Tally], previous: Mapping[Account, int]
    ) -> tuple[Share, ...]:
        cap = self._parts.manifest.limits.points_per_epoch
        return settle([*tallies.values()], previous, points_per_epoch=cap, epoch_budget=self._epoch_budget)

    async def _post(self, epoch: int, turn: int) -> None:
        """Post a root that a quorum approved: the proposer at once, the others a turn later."""
        parts = self._parts
        for content_id, proposal in parts.contributions.proposals(epoch).items():
            root = proposal.root(content_id)
            valid = self._signatures(root, content_id)
            mine = proposal.account == parts.author.account
            if len(valid) < self._quorum or not (mine or turn > 0):
                continue
            bonded = (
                await parts.ledger.bonded_auditors()
            )  # one signature without a bond invalidates a posting
            signatures = [valid[account] for account in sorted(bonded.intersection(valid))]
            if len(signatures) >= self._quorum:
                await parts.ledger.post(root, signatures)

    def _signatures(self, root: EpochRoot, content_id: ContentId) -> Mapping[Account, bytes]:
        """Return the signatures of the valid approvals of a root, by auditor."""
        digest = root.digest(self._parts.manifest.ledger_domain)
        return {
            approval.account: approval.signature
            for approval in self._parts.contributions.approvals(root.epoch, content_id)
            if secp256k1.recover(digest, approval.signature) == approval.account
        }

    async def _publish(self, kind: Kind, message: Tally | Proposal | Approval) -> ContentId:
        parts = self._parts
        envelope = seal(kind, parts.manifest.swarm_id, message.to_payload(), parts.author.seed)
        parts.contributions.add(envelope.content_id, kind, message, envelope.to_bytes())
        await parts.transport.publish(contributions_topic(parts.manifest.swarm_id), envelope.to_bytes())
        return envelope.content_id

    def _report_final(self, root: EpochRoot) -> None:
        self._parts.telemetry.events.write(
            "epoch_final",
            epoch=root.epoch,
            total=root.total,
            contribution_root=root.contribution_root,
            cumulative_root=root.cumulative_root,
        )
