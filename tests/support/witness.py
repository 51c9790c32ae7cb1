"""A node's watchtower over real contracts, with the auditors' messages that the test gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from support.auditor_harness import CROWD, FOUR_AUDITORS, Funded
from support.contributions import sealed_by, tally_of
from support.ledger import POINTS_CAP, Contracts, found, keys, settled, sign

from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.watchtower import LedgerWatchtower, WatchtowerParts
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol import secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution

AUTHOR: Final = FOUR_AUDITORS[0]
NODE: Final = CROWD[0]
EARNED: Final = {NODE.account: 3, CROWD[1].account: 1}


class Witness:
    """A node's watchtower over real contracts, and what the node holds of the auditors' messages.

    Args:
        contracts: another node's; a new chain if there are none.
    """

    def __init__(self, folder: Path, *, contracts: Contracts | None = None, node: Funded = NODE) -> None:
        self._owns_chain = contracts is None
        self.contracts = contracts or found(folder / "chain.sqlite")
        self.manifest = self.contracts.manifest()
        self.contributions = ContributionStore(folder / "contributions.sqlite", self.manifest.swarm_id)
        self.ledger = LedgerClient(
            manifest=self.manifest,
            account=keys(node.number),
            rpc_urls=[self.contracts.chain.url],
            outbox_path=folder / "outbox.sqlite",
            clock=lambda: self.contracts.chain.now_seconds,
        )
        self._events = folder / "events.jsonl"
        self._log = EventLog(self._events)
        self.tower = LedgerWatchtower(
            WatchtowerParts(
                manifest=self.manifest,
                account=node.account,
                auditors=self.contracts.ledger.auditors()[0].of,
                ledger=self.ledger,
                contributions=self.contributions,
                events=self._log,
                clock=lambda: self.contracts.chain.now_seconds,
            )
        )

    def close(self) -> None:
        """Close what was opened."""
        self.ledger.close()
        self._log.close()
        if self._owns_chain:
            self.contracts.chain.close()

    def hold(self, message: Tally | Proposal | Approval) -> ContentId:
        """Store an auditor's message; return its content id."""
        author = next(auditor for auditor in FOUR_AUDITORS if auditor.account == message.account)
        data = sealed_by(author, self.manifest, message)
        envelope = parse_envelope(data, self.manifest.swarm_id)
        content = parse_contribution(envelope)
        self.contributions.add(envelope.content_id, envelope.kind, content, data)
        return envelope.content_id

    def propose(self, epoch: int, shares: Sequence[Share], tallies: Sequence[ContentId]) -> ContentId:
        """Store a proposal of the first auditor; return its content id."""
        return self.hold(
            Proposal(
                node=AUTHOR.node,
                account=AUTHOR.account,
                epoch=epoch,
                tallies=tuple(sorted(tallies)),
                shares=tuple(shares),
            )
        )

    def post_truth(self, epoch: int, had: Mapping[Account, int]) -> None:
        """Post an epoch that this node explains."""
        self._post(self.hold_truth(epoch, had))

    def hold_truth(self, epoch: int, had: Mapping[Account, int]) -> ContentId:
        """Store what explains an epoch; return its proposal's content id."""
        tallies = [tally_of(auditor, epoch, EARNED) for auditor in FOUR_AUDITORS[:3]]
        return self.propose(epoch, settled(tallies, had), [self.hold(tally) for tally in tallies])

    def post_lie(self, epoch: int, had: Mapping[Account, int]) -> None:
        """Post an epoch in which an account has more than its cap."""
        most = POINTS_CAP + 1
        shares = [Share(account, most, had.get(account, 0) + most) for account in (NODE.account,)]
        kept = [Share(account, 0, count) for account, count in had.items() if account != NODE.account]
        everybody = sorted([*shares, *kept], key=lambda share: share.account)
        self._post(self.propose(epoch, everybody, [ContentId(bytes(32))]))

    def sign_twice(self, epoch: int, turns: Sequence[int] = (0,)) -> None:
        """Hold two proposals of the first auditor, both of which it has signed in each of the turns."""
        for points in (2, 3):
            shares = (Share(NODE.account, points, points),)
            content_id = self.propose(epoch, shares, [ContentId(bytes(32))])
            root = self.contributions.epoch_root(content_id)
            assert root is not None
            for turn in turns:
                digest = EpochApproval(turn, root).digest(self.manifest.ledger_domain)
                self.hold(
                    Approval(
                        node=AUTHOR.node,
                        account=AUTHOR.account,
                        epoch=epoch,
                        proposal=content_id,
                        signature=secp256k1.sign(AUTHOR.secret, digest),
                        turn=turn,
                    )
                )

    def _post(self, proposal: ContentId) -> None:
        root = self.contributions.epoch_root(proposal)
        assert root is not None
        root = replace(root, base_root=self.contracts.base_root)
        self.contracts.post(root, sign(root, self.contracts.domain))

    def wait(self, seconds: float) -> None:
        """Let seconds pass since the newest block."""
        chain = self.contracts.chain
        chain.now_seconds = chain.engine.head.timestamp + seconds

    async def queued(self) -> dict[str, int]:
        """Return how many requests of each kind wait in the outbox."""
        counts = {kind: await self.ledger.pending(kind) for kind in ("challenge", "finalise", "question")}
        return {kind: count for kind, count in counts.items() if count}

    def said(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a name, without when they were written."""
        events = [event for event in read_events(self._events) if event["event"] == name]
        return [{key: value for key, value in event.items() if key in ("epoch", "error")} for event in events]
