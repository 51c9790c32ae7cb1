"""The watchtower: every node's part in keeping the ledger honest.

A live posting is compared with the contributions that this node holds. If it can be proved false to the
contract, it is challenged, whoever signed it; if this node comes to the same root, the posting is finalised
after its challenge window; otherwise it is reported to the operator and left to other nodes. Auditors that
sign two roots in one turn are challenged, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.node.auditing.disputes import Dispute, equivocations, find_fraud
from sapo_client.node.auditing.settlement import grace_seconds, is_settlement
from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.epochs import epoch_at
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.contribution_store import ContributionStore

if TYPE_CHECKING:
    from sapo_client.ledger.records import EpochRecord
    from sapo_client.ledger.service import LedgerClient
    from sapo_protocol.eip712 import EpochRoot

_LOOK_SECONDS: Final = 1.0

_SEARCHED_EPOCHS: Final = SETTLED_EPOCHS + 1
"""Ended epochs that are searched for equivocations: approvals come while their epoch can be settled."""


_GROUPS: Final = 16
"""Groups of nodes that finalise one after another, so that not every node pays for the same transaction."""


@dataclass(frozen=True, slots=True)
class WatchtowerParts:
    """The parts that the watchtower works with."""

    manifest: Manifest
    account: Account
    ledger: LedgerClient
    contributions: ContributionStore
    events: EventLog
    clock: Clock


class LedgerWatchtower:
    """Service that challenges false postings and finalises correct ones."""

    def __init__(self, parts: WatchtowerParts) -> None:
        self._parts = parts
        self._auditors: tuple[Account, ...] = ()
        self._quorum = 0
        self._challenge_seconds = 0
        self._points_cap = 0
        self._epoch_budget = 0
        self._reported: set[Digest] = set()
        self._punished: set[tuple[Account, int, int]] = set()

    async def run(self) -> None:
        """Examine postings until cancelled; may be run again after that."""
        while True:
            await self.look()
            await trio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Examine the auditors' signatures and the live posting once; queue the transactions that follow."""
        if not self._auditors:
            await self._learn_terms()
        if await self._parts.ledger.can_settle():
            await self._punish_equivocations()
        live = await self._parts.ledger.live_record()
        if live is not None:
            await self._examine(live)

    async def _learn_terms(self) -> None:
        ledger = self._parts.ledger
        self._challenge_seconds = await ledger.challenge_seconds()
        self._points_cap = await ledger.points_cap()
        self._epoch_budget = await ledger.epoch_budget()
        self._auditors, self._quorum = await ledger.auditors()

    async def _punish_equivocations(self) -> None:
        parts = self._parts
        current = epoch_at(parts.manifest, max(parts.clock(), parts.manifest.genesis_seconds))
        for epoch in range(max(0, current - _SEARCHED_EPOCHS), current):
            found = equivocations(parts.contributions, epoch, parts.manifest.ledger_domain)
            for (auditor, turn), proof in found.items():
                if (auditor, epoch, turn) in self._punished:
                    continue
                self._punished.add((auditor, epoch, turn))
                if not await parts.ledger.has_equivocated(auditor, epoch, turn):
                    await parts.ledger.challenge(epoch, proof)
                    parts.events.write("challenge", epoch=epoch, auditor=auditor, proof=proof.FUNCTION)

    async def _examine(self, live: EpochRecord) -> None:
        parts = self._parts
        record = await parts.ledger.last_record()
        last = record.root if record else None
        dispute = Dispute(live.root, last, await parts.ledger.granted_points(), self._points_cap)
        if await parts.ledger.live_record() != live:
            return  # the state changed between these answers, so they do not fit together
        if (proof := find_fraud(dispute, parts.contributions)) is not None:
            await parts.ledger.challenge(live.root.epoch, proof)  # the outbox queues each request once
            self._report("challenge", live.root, proof=proof.FUNCTION)
        elif not self._is_explained(live.root, last):
            self._report("posting_doubted", live.root)
        elif parts.clock() >= self._final_seconds(live):
            await parts.ledger.finalise(live)

    def _is_explained(self, root: EpochRoot, last: EpochRoot | None) -> bool:
        """Whether this node comes to the same root from the tallies behind it."""
        content_id = ContentId(root.archive_digest)
        proposal = self._parts.contributions.proposal(content_id)
        if proposal is None or proposal.root(content_id) != root:
            return False
        return is_settlement(
            self._parts.contributions,
            proposal,
            last,
            quorum=self._quorum,
            points_cap=self._points_cap,
            epoch_budget=self._epoch_budget,
        )

    def _final_seconds(self, live: EpochRecord) -> float:
        """Return when this node finalises a posting: auditors one by one, then the other nodes in groups."""
        count, account = len(self._auditors), self._parts.account
        turn = count + account[-1] % _GROUPS
        if account in self._auditors:
            turn = (self._auditors.index(account) - live.root.epoch) % count
        return live.posted_at_seconds + self._challenge_seconds + turn * grace_seconds(self._parts.manifest)

    def _report(self, event: str, root: EpochRoot, **fields: object) -> None:
        """Write an event once per posting, however often it is examined."""
        digest = root.digest(self._parts.manifest.ledger_domain)
        if digest not in self._reported:
            self._reported.add(digest)
            self._parts.events.write(event, epoch=root.epoch, digest=digest, **fields)
