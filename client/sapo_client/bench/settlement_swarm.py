"""Auditors, a watching node and a returning node, in a swarm of many accounts on a chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio
from eth_account.signers.local import LocalAccount

from sapo_client.bench.costs import StepCost, measured
from sapo_client.bench.ledger import EPOCH_SECONDS, GENESIS_SECONDS, QUORUM, LedgerChain, address_of
from sapo_client.bench.swarm import BenchAuthor, BenchSwarm
from sapo_client.ledger.contract import Distributor
from sapo_client.ledger.history import History
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState, Postable
from sapo_client.node.auditing.pages import PageExchange
from sapo_client.node.auditing.settlement import cumulative_points
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.sync import bounded_response
from sapo_client.node.runtime.context import Author
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol import merkle
from sapo_protocol.constants import MAX_PAGE_ROWS
from sapo_protocol.contributions import Approval, Proposal, cumulative_entries
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.envelope import SignedEnvelope, parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.requests import parse_response
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution
from sapo_verification.signing.database import SigningDatabase

POINTS_CAP: Final = 16

_ROUNDS: Final = 60
"""Maximum number of rounds in which a node requests pages from its peers."""

_ALL: Final = 1 << 20


class BenchNode:
    """A node's store, and its exchange of pages with its peers."""

    def __init__(self, hub: MemoryHub, author: BenchAuthor, manifest: Manifest, path: Path) -> None:
        self.contributions = ContributionStore(path, manifest.swarm_id)
        self.transport = MemoryTransport(hub, peer_id_from_key(author.node), on_bug=_raise)
        self.exchange = PageExchange(
            transport=self.transport,
            uploads=ListUploads(self.transport),
            contributions=self.contributions,
            swarm_id=manifest.swarm_id,
            clock=lambda: self._now_seconds,
        )
        self._manifest = manifest
        self._now_seconds = 0.0

    def receive(self, messages: Iterable[bytes], now_seconds: float) -> None:
        """Parse and store messages whose signatures are valid."""
        self._now_seconds = now_seconds
        for data in messages:
            envelope = parse_envelope(data, self._manifest.swarm_id)
            content = parse_contribution(envelope)
            if not self.contributions.has(envelope.content_id) and envelope.is_signed_by(content.node):
                self.contributions.add(
                    envelope.content_id, envelope.kind, content, data, received_seconds=now_seconds
                )

    async def fetch_pages(self, of: ContentId | None = None) -> None:
        """Request pages from peers until none is missing, or none of one proposal's pages."""
        for _ in range(_ROUNDS):
            if not self.contributions.missing_pages(1) or (of and self.contributions.proposal(of)):
                return
            await self.exchange.look()
        raise RuntimeError(f"{len(self.contributions.missing_pages(_ALL))} pages never came")

    def page_bytes(self, content_id: ContentId) -> int:
        """Return the total size of a message's pages, in bytes."""
        message = self.contributions.tally(content_id) or self.contributions.proposal(content_id)
        return sum(map(len, self.contributions.pages(message.pages))) if message else 0


class AccountsSwarm:
    """Four auditors and a watcher.

    Args:
        names: the accounts, all of which earn in every epoch.

    Attributes:
        costs: costs of the steps so far.
        last: root of the last final epoch.
    """

    def __init__(self, chain: LedgerChain, folder: Path, names: Sequence[Account]) -> None:
        self.chain, self.names, self.costs = chain, names, list[StepCost]()
        self.manifest = replace(
            BenchSwarm().manifest,
            chain_id=chain.deployment.chain_id,
            registry=chain.deployment.registry,
            ledger=chain.deployment.ledger,
            finality_seconds=12,
            genesis_seconds=GENESIS_SECONDS,
            epoch_seconds=EPOCH_SECONDS,
        )
        accounts = tuple(map(address_of, chain.auditors))
        budget = chain.ledger.epoch_budget()
        self.terms = AgreementTerms(Auditors(accounts).of, QUORUM, POINTS_CAP, budget)
        self.authors = [BenchAuthor(number) for number in range(len(accounts))]
        self._hub, self._folder = MemoryHub(), folder
        self._auditors = [self._node(author) for author in self.authors]
        self._agreements = [
            self._agreement(*parts)
            for parts in zip(self.authors, chain.auditors, self._auditors, strict=True)
        ]
        self.watcher = self._node(BenchAuthor(len(accounts)))
        self.last: EpochRoot | None = None
        self._granted = 0

    async def start(self, nursery: trio.Nursery) -> None:
        """Start the nodes and connect them to each other; enrol the claiming account."""
        self.chain.enrol(self.names[:1])
        nodes = [*self._auditors, self.watcher]
        for index, node in enumerate(nodes):
            await _connect(nursery, node, nodes[:index])

    def counted(self, epoch: int) -> list[tuple[Account, int]]:
        """Return each account's points in an epoch."""
        return [(name, 1 + (number + epoch) % POINTS_CAP) for number, name in enumerate(self.names)]

    async def settle(self, epoch: int) -> None:
        """Simulate an epoch from its tallies to its final root."""
        end, grace = epoch_start_seconds(self.manifest, epoch + 1), grace_seconds(self.manifest)
        tallies = self._tallies(epoch, end + grace)
        for number, auditor in enumerate(self._auditors):
            with self.measure("store the pages of three other tallies", is_told=number == 0):
                auditor.receive(tallies, end + grace)
                await auditor.fetch_pages()
        posting = self._agree(epoch, end + 2 * grace)
        for node in (*self._auditors, self.watcher):
            node.contributions.note_posted(
                epoch, ContentId(posting.statement.root.archive_digest), is_final=True
            )
        self._make_final(posting)
        self.watcher.receive(self._auditors[0].contributions.envelopes(epoch), end + 3 * grace)
        await self.watcher.fetch_pages()

    def _tallies(self, epoch: int, now_seconds: float) -> list[bytes]:
        tallies = []
        for number, (node, agreement) in enumerate(zip(self._auditors, self._agreements, strict=True)):
            points = [
                (name, count + (place % MAX_PAGE_ROWS == number))  # changes every page, but no lower median
                for place, (name, count) in enumerate(self.counted(epoch))
            ]
            with self.measure("tally: list the counts on pages", is_told=number == 0) as cost:
                sent = agreement.tally(epoch, points, merkle.EMPTY_ROOT, now_seconds)
            _note(cost, sent, node)
            tallies.append(sent.to_bytes())
        return tallies

    def _agree(self, epoch: int, now_seconds: float) -> Postable:
        """Let the auditor whose turn it is propose, and the others approve."""
        state = ChainState(self.last, None, self._granted, frozenset(self.terms.auditors(epoch)))
        first = epoch % len(self._auditors)
        with self.measure("proposal: settle, root, list on pages, sign") as cost:
            sent = [*self._agreements[first].step(now_seconds, state).messages]
        _note(cost, sent[0], self._auditors[first])
        messages = [message.to_bytes() for message in sent]
        for number in range(len(self._auditors)):
            if number == first:
                continue
            self._auditors[number].receive(messages[:2], now_seconds)
            is_told = len(messages) == 2
            with self.measure("approval: settle, pages, root, compare, sign", is_told=is_told) as cost:
                [own] = self._agreements[number].step(now_seconds, state).messages
            _note(cost, own, self._auditors[number])
            messages.append(own.to_bytes())
        for auditor in self._auditors:
            auditor.receive(messages, now_seconds)
        with self.measure("look again when the approvals have come"):
            [posting] = self._agreements[first].step(now_seconds + 1, state).postings
        return posting

    def _make_final(self, posting: Postable) -> None:
        chain, root = self.chain, posting.statement.root
        chain.advance_to(epoch_start_seconds(self.manifest, root.epoch + 2))
        data = chain.ledger.post(posting.statement, posting.signatures)
        post = chain.send(chain.ledger.address, data)
        self.costs.append(StepCost("post an epoch and make it final", len(data), gas=post + chain.finalise()))
        self.last, self._granted = root, self._granted + root.total

    def claim(self) -> None:
        """Claim for the first account for the first time, from the watching node's store."""
        account = self.names[0]
        distributor = Distributor(self.chain.rpc, self.chain.deployment.distributor)
        with self.measure("claim for the first time") as cost:
            entries = cumulative_entries(_settlement(self.watcher, self.last).shares)
            place = merkle.sum_place(entries, account)
        data = distributor.claim(account, place.value, place.proof)
        cost.message_bytes, cost.gas = len(data), self.chain.send(distributor.address, data)

    async def return_after_a_week(self) -> None:
        """Let a node with an empty store fetch the last settlement, and check it against the chain's root."""
        root = _last_root(self.chain)
        for node in (*self._auditors, self.watcher):
            node.contributions.forget(before_epoch=root.epoch + 1)  # what peers keep longest
        messages = self._auditors[0].contributions.envelopes(since_epoch=root.epoch)
        answer = bounded_response(messages)
        proposal, node = ContentId(root.archive_digest), self._node(BenchAuthor(len(self.authors) + 1))
        async with trio.open_nursery() as nursery:
            await _connect(nursery, node, [*self._auditors, self.watcher])
            with self.measure("return after a week: messages and pages of the last epoch") as cost:
                node.contributions.note_posted(root.epoch, proposal, is_final=True)
                node.receive(parse_response(answer), self.chain.now_seconds)
                await node.fetch_pages(proposal)
            cost.message_bytes, cost.page_bytes = max(map(len, messages)), node.page_bytes(proposal)
            with self.measure("return after a week: tree of all accounts, its root that of the chain"):
                points = cumulative_points(node.contributions, root) or {}
                if merkle.sum_root(sorted(points.items())) != root.cumulative_root:
                    raise RuntimeError("the pages that came are not those under the chain's root")
            nursery.cancel_scope.cancel()

    @contextmanager
    def measure(self, step: str, *, is_told: bool = True) -> Iterator[StepCost]:
        """Yield the cost of a block; with ``is_told`` it is added to ``costs``."""
        with measured(step) as cost:
            yield cost
        if is_told:
            self.costs.append(cost)

    def _node(self, author: BenchAuthor) -> BenchNode:
        return BenchNode(self._hub, author, self.manifest, self._folder / f"{author.number}.sqlite")

    def _agreement(self, author: BenchAuthor, keys: LocalAccount, node: BenchNode) -> Agreement:
        return Agreement(
            author=Author(author.seed, author.node, address_of(keys)),
            account_key=bytes(keys.key),
            manifest=self.manifest,
            terms=self.terms,
            contributions=node.contributions,
            signing=SigningDatabase(":memory:"),
        )


def _settlement(node: BenchNode, root: EpochRoot | None) -> Proposal:
    proposal = node.contributions.proposal(ContentId(root.archive_digest)) if root else None
    if proposal is None:
        raise RuntimeError("the node misses the settlement behind the last final root")
    return proposal


def _last_root(chain: LedgerChain) -> EpochRoot:
    record = History(chain.ledger).last()
    if record is None:
        raise RuntimeError("no epoch is final")
    return record.root


def _note(cost: StepCost, sent: SignedEnvelope, node: BenchNode) -> None:
    """Record the sizes of a message and of its pages."""
    cost.message_bytes = len(sent.to_bytes())
    if not isinstance(parse_contribution(sent), Approval):
        cost.page_bytes = node.page_bytes(sent.content_id)


async def _connect(nursery: trio.Nursery, node: BenchNode, others: Sequence[BenchNode]) -> None:
    await nursery.start(node.transport.run)
    node.exchange.serve()
    for other in others:
        await node.transport.connect(other.transport.addresses[0])


def _raise(error: Exception) -> None:
    raise error
