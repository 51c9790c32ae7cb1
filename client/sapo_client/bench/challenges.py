"""False postings of a quorum in a swarm of many accounts, and a node's challenge of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sapo_client.bench.costs import StepCost
from sapo_client.bench.ledger import address_of
from sapo_client.bench.settlement_swarm import POINTS_CAP, AccountsSwarm
from sapo_client.ledger.fraud import AccountPlaces
from sapo_client.node.auditing.disputes import Dispute, PostedTrees, equivocations, find_fraud, posted_trees
from sapo_client.node.auditing.settlement import cumulative_points
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Approval, Proposal, Share, page_digest, to_pages
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId

QUESTIONS: Final = 16
"""Number of questions about one posting that a node answers."""


class Challenges:
    """All kinds of challenges of an epoch's postings.

    Args:
        epoch: an epoch whose postings are all false; none becomes final.
    """

    def __init__(self, swarm: AccountsSwarm, epoch: int) -> None:
        self._swarm, self._epoch = swarm, epoch
        self._chain, self._store = swarm.chain, swarm.watcher.contributions
        self._verifier = swarm.chain.ledger.verifier()
        self._before = cumulative_points(self._store, swarm.last) or {}

    def play(self) -> None:
        """Post a false root of each kind, and reject it."""
        points = dict(self._swarm.counted(self._epoch))
        first, second, *_ = points
        honest = self._shares(points)
        self._reject("proveOverCap", self._shares({**points, first: POINTS_CAP + 1}))
        moved = [
            replace(share, cumulative=share.cumulative + {first: 1, second: -1}.get(share.account, 0))
            for share in honest
        ]
        self._reject("proveBalance", moved)
        self._prove_equivocation()
        self._ask_and_answer(honest)

    def _shares(self, points: Mapping[Account, int]) -> Sequence[Share]:
        return tuple(
            Share(account, points.get(account, 0), self._before.get(account, 0) + points.get(account, 0))
            for account in sorted({*self._before, *points})
        )

    def _reject(self, function: str, shares: Sequence[Share]) -> None:
        """Post a false root signed by a quorum; find and submit the proof."""
        dispute = self._post(shares)
        with self._swarm.measure(f"{function}: read the trees, find the proof, build it") as cost:
            proof = find_fraud(dispute, posted_trees(dispute, self._store))
        if proof is None or function != proof.FUNCTION:
            raise RuntimeError(f"a false posting is not found to be one: {function}")
        data = self._verifier.prove(proof)
        cost.message_bytes, cost.gas = len(data), self._chain.send(self._verifier.address, data)
        self._chain.bond_again()

    def _prove_equivocation(self) -> None:
        """Submit the proof that the liars signed two roots in one turn."""
        with self._swarm.measure("proveEquivocation: read the proposals, find it") as cost:
            found = [*equivocations(self._store, self._epoch, self._chain.domain).values()]
        if not found:
            raise RuntimeError("two signatures in one turn are not found")
        data = self._verifier.prove(found[0])
        cost.message_bytes, cost.gas = len(data), self._chain.send(self._verifier.address, data)
        self._chain.bond_again()

    def _ask_and_answer(self, shares: Sequence[Share]) -> None:
        """Ask for leaves of a correct posting: answer in time, and then leave one question unanswered."""
        dispute = self._post(shares)
        shown, hidden, *_ = self._swarm.names
        self._ask(shown)
        with self._swarm.measure("answer: read the trees, find the places") as cost:
            trees = posted_trees(dispute, self._store)
            places = _places(trees, shown)
        data = self._verifier.answer(places)
        cost.message_bytes, cost.gas = len(data), self._chain.send(self._verifier.address, data)
        with self._swarm.measure(f"find the places for {QUESTIONS} more answers"):
            for account in self._swarm.names[:: max(1, len(self._swarm.names) // QUESTIONS)][:QUESTIONS]:
                _places(trees, account)
        self._ask(hidden)
        self._chain.advance_to(self._chain.now_seconds + self._verifier.answer_seconds())
        data = self._verifier.prove_hidden(hidden)
        gas = self._chain.send(self._verifier.address, data)
        self._swarm.costs.append(StepCost("proveHidden", len(data), gas=gas))

    def _ask(self, account: Account) -> None:
        token = self._chain.ledger.distributor().token()
        bond = self._verifier.question_bond()
        self._chain.send(token.address, token.approve(self._verifier.address, bond))
        self._chain.advance_to(self._chain.now_seconds + 1)
        data = self._verifier.ask(account)
        gas = self._chain.send(self._verifier.address, data)
        self._swarm.costs.append(StepCost("ask for an account's leaves", len(data), gas=gas))

    def _post(self, shares: Sequence[Share]) -> Dispute:
        """Publish a proposal, sign it with a quorum without any check, and post it."""
        author, base = self._swarm.authors[0], merkle.EMPTY_ROOT
        account, pages = self._swarm.terms.auditors(self._epoch)[0], to_pages(shares)
        proposal = Proposal(
            author.node,
            account,
            self._epoch,
            (ContentId(bytes(32)),),
            shares,
            pages=tuple(map(page_digest, pages)),
        )
        sent = seal(Kind.PROPOSAL, self._swarm.manifest.swarm_id, proposal.to_payload(), author.seed)
        self._receive(sent)
        self._store.add_pages(pages)
        root = proposal.root(sent.content_id)
        digest = EpochApproval(0, root).digest(self._chain.domain)
        for signer, keys in zip(self._swarm.authors, self._chain.auditors, strict=True):
            approval = Approval(
                signer.node,
                address_of(keys),
                self._epoch,
                sent.content_id,
                secp256k1.sign(bytes(keys.key), digest),
            )
            self._receive(
                seal(Kind.APPROVAL, self._swarm.manifest.swarm_id, approval.to_payload(), signer.seed)
            )
        if self._swarm.last is not None:
            base = self._swarm.last.cumulative_root
        posted = replace(root, base_root=base)  # false cumulative points are posted on the true base
        self._chain.advance_to(epoch_start_seconds(self._swarm.manifest, self._epoch + 1))
        ledger = self._chain.ledger
        self._chain.send(ledger.address, self._chain.posting(EpochApproval(0, posted)))
        return Dispute(posted, self._swarm.last, POINTS_CAP)

    def _receive(self, message: SignedEnvelope) -> None:
        self._swarm.watcher.receive([message.to_bytes()], self._chain.now_seconds)


def _places(trees: PostedTrees, account: Account) -> AccountPlaces:
    places = trees.places(account)
    if places is None:
        raise RuntimeError("the watcher misses a tree of a posting whose pages it holds")
    return places
