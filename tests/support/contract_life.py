"""The life of all contracts on one embedded chain, with refused calls, for other machines to run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from eth_account.signers.local import LocalAccount
from eth_utils import to_checksum_address
from support.ledger import (
    ACCOUNT_EXIT_SECONDS,
    ALICE,
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    CHALLENGE_SECONDS,
    DEPLOYER,
    EPOCH_SECONDS,
    POINTS_CAP,
    QUORUM,
    STRANGER,
    Contracts,
    Tree,
    address,
    ask,
    found,
    keys,
    make_root,
    node_key,
    sign,
)

from sapo_client.ledger.fraud import (
    AccountPlaces,
    Balance,
    Equivocation,
    FraudProof,
    OverCap,
    Recording,
    posting_name,
)
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import EpochApproval, EpochRoot, SuccessionNotice, SuccessionWithdrawal
from sapo_protocol.identifiers import Account, Digest

A, B = address(ALICE), address(BOB)
NEWCOMER: Final = Account(b"\x77" * 20)
_GAS: Final = 3_000_000
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class Life:
    """One chain's contracts, and what is done with them."""

    contracts: Contracts

    def refused(self, signer: LocalAccount, to: Account, data: bytes) -> None:
        """Mine a transaction that the contract refuses."""
        chain = self.contracts.chain
        transaction = {
            "chainId": chain.engine.genesis.chain_id,
            "to": to_checksum_address(to),
            "data": data,
            "nonce": chain.engine.state(chain.engine.head).account(address(signer)).nonce,
            "gas": _GAS,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**9,
        }
        digest = chain.engine.send(bytes(signer.sign_transaction(transaction).raw_transaction))
        receipt = chain.engine.receipt(digest)
        assert receipt is not None
        assert receipt["status"] == "0x0"

    def later(self, seconds: float) -> None:
        self.contracts.chain.now_seconds = self.contracts.chain.engine.head.timestamp + seconds

    def statement(
        self, epoch: int, points: Mapping[Account, int], before: Mapping[Account, int]
    ) -> EpochRoot:
        """Return the honest root of an epoch's points on top of what was granted."""
        total = {account: before.get(account, 0) + points.get(account, 0) for account in {*before, *points}}
        root = make_root(
            epoch,
            base_root=self.contracts.base_root,
            total=sum(points.values()),
            cumulative_root=Tree(total).root,
        )
        return replace(root, contribution_root=Tree(dict(points)).root)

    def post(self, root: EpochRoot, signers: tuple[LocalAccount, ...] = AUDITORS[:QUORUM]) -> None:
        self.contracts.post(root, sign(root, self.contracts.domain, signers))

    def refuse_proof(self, proof: FraudProof) -> None:
        verifier = self.contracts.verifier
        self.refused(BOB, verifier.address, verifier.prove(proof))

    def equivocation(self, signer: LocalAccount, epoch: int, turn: int) -> Equivocation:
        a, b = (make_root(epoch, archive=archive) for archive in (8, 9))
        (of_a,), (of_b,) = (sign(root, self.contracts.domain, [signer], turn) for root in (a, b))
        return Equivocation(turn, a, b, of_a, of_b)


def play(path: Path) -> None:
    """Write the file of an embedded chain on which every contract did all that it can do."""
    contracts = found(path, account_exit_seconds=ACCOUNT_EXIT_SECONDS)
    life = Life(contracts)
    parts: tuple[Callable[[Life], None], ...] = (
        _nodes,
        _first_epoch,
        _payouts,
        _questions,
        _proofs,
        _recall,
        _auditors_bonds,
        _accounts_bonds,
        _announcements,
        _faucet,
    )
    try:
        for part in parts:
            part(life)
            life.later(1)
    finally:
        contracts.chain.close()


def _nodes(life: Life) -> None:
    contracts, registry = life.contracts, life.contracts.registry
    end = contracts.chain.engine.head.timestamp + 1000
    for number in range(1, 5):
        contracts.register(ALICE, node_key(number), end + number)
    life.refused(ALICE, registry.address, registry.register(node_key(5), end))
    contracts.revoke(ALICE, node_key(2))
    life.refused(ALICE, registry.address, registry.revoke(node_key(2)))


def _first_epoch(life: Life) -> None:
    """A posting is struck below its quorum, completed, made final and claimed."""
    contracts, ledger, paying = life.contracts, life.contracts.ledger, life.contracts.distributor
    points = {A: POINTS_CAP, B: 3}
    root = life.statement(0, points, {})
    life.post(root)
    again = ledger.post(EpochApproval(0, root), sign(root, contracts.domain))
    life.refused(BOB, ledger.address, again)
    life.refused(BOB, ledger.address, ledger.finalise())
    contracts.prove(life.equivocation(AUDITORS[0], 0, 1))
    life.later(CHALLENGE_SECONDS)
    life.refused(BOB, ledger.address, ledger.finalise())
    life.post(root, AUDITORS[1:])
    contracts.finalise()
    contracts.bond(AUDITORS[0])
    tree = Tree(points)
    contracts.claim(A, points[A], tree.proof(A))
    life.refused(BOB, paying.address, paying.claim(A, points[A], tree.proof(A)))
    life.refused(BOB, paying.address, paying.claim(B, points[B] + 1, tree.proof(B)))


def _payouts(life: Life) -> None:
    chain, paying = life.contracts.chain, life.contracts.distributor
    chain.send(BOB, paying.address, paying.set_payout(A))
    chain.send(BOB, paying.address, paying.set_payout(NEWCOMER))
    life.refused(BOB, paying.address, paying.apply_payout(B))
    life.refused(BOB, paying.address, paying.set_payout(Account(bytes(20))))
    life.later(7 * _DAY_SECONDS)
    chain.send(ALICE, paying.address, paying.apply_payout(B))
    points = {A: POINTS_CAP, B: 3}
    life.contracts.claim(B, 3, Tree(points).proof(B))


def _questions(life: Life) -> None:
    """One question is answered; another one rejects its posting, and a third one is refunded."""
    contracts, verifier, chain = life.contracts, life.contracts.verifier, life.contracts.chain
    had, points = {A: POINTS_CAP, B: 3}, {A: 1}
    root = life.statement(10, points, had)
    after = {A: POINTS_CAP + 1, B: 3}
    life.post(root)
    ask(contracts, A)
    places = AccountPlaces(A, *(Tree(values).place(A) for values in (had, points, after)))
    wrong = AccountPlaces(A, *(Tree(values).place(A) for values in (had, after, after)))
    life.refused(BOB, verifier.address, verifier.answer(wrong))
    chain.send(BOB, verifier.address, verifier.answer(places))
    contracts.finalise()
    life.post(life.statement(11, {B: 1}, after))
    ask(contracts, A)
    ask(contracts, B)
    life.refused(BOB, verifier.address, verifier.prove_hidden(A))
    life.later(CHALLENGE_SECONDS)
    live = contracts.ledger.live()
    assert live is not None
    chain.send(BOB, verifier.address, verifier.prove_hidden(A))
    name = posting_name(live.root.digest(contracts.domain), live.posted_at_seconds)
    chain.send(BOB, verifier.address, verifier.refund(name, B))


def _proofs(life: Life) -> None:
    """Points above the cap and a false balance cost three bonds each; a path of 160 words is
    recorded."""
    contracts, had = life.contracts, {A: POINTS_CAP + 1, B: 3}
    life.post(life.statement(12, {A: POINTS_CAP}, had))
    life.refuse_proof(OverCap(A, Tree({A: POINTS_CAP}).place(A)))
    contracts.finalise()
    had = {**had, A: 2 * POINTS_CAP + 1}
    life.post(life.statement(13, {B: POINTS_CAP + 1}, had))
    contracts.prove(OverCap(B, Tree({B: POINTS_CAP + 1}).place(B)))
    for auditor in AUDITORS[:QUORUM]:
        contracts.bond(auditor)
    after = {A: had[A] + 6, B: had[B] + 1}
    root = life.statement(14, {B: 7}, had)
    life.post(replace(root, cumulative_root=Tree(after).root))
    contracts.prove(Balance(AccountPlaces(B, *(Tree(values).place(B) for values in (had, {B: 7}, after)))))
    for auditor in AUDITORS[:QUORUM]:
        contracts.bond(auditor)
    number = int.from_bytes(B, "big")
    deep = {Account((number ^ 1 << bit).to_bytes(20, "big")): 1 for bit in range(160)} | {B: 7}
    recording = Recording(Tree(deep).root, B, Tree(deep).place(B))
    contracts.chain.send(BOB, contracts.verifier.address, contracts.verifier.record(recording))


def _recall(life: Life) -> None:
    contracts, verifier = life.contracts, life.contracts.verifier
    chain, token = contracts.chain, contracts.token
    had = {A: 2 * POINTS_CAP + 1, B: 3}
    life.post(life.statement(20, {A: 1, B: 1}, had))
    contracts.finalise()
    newest = contracts.history.newest(1)
    for account in (A, B):
        chain.send(DEPLOYER, token.address, token.approve(verifier.address, verifier.question_bond()))
        chain.send(DEPLOYER, verifier.address, verifier.ask_final(newest, account))
    after = {A: had[A] + 1, B: 4}
    places = AccountPlaces(B, *(Tree(values).place(B) for values in (had, {A: 1, B: 1}, after)))
    chain.send(BOB, verifier.address, verifier.answer_final(newest[0], places))
    life.refused(BOB, verifier.address, verifier.recall(newest, A))
    life.later(CHALLENGE_SECONDS)
    chain.send(BOB, verifier.address, verifier.recall(newest, A))
    life.refused(BOB, verifier.address, verifier.recall(newest, A))


def _auditors_bonds(life: Life) -> None:
    contracts, vault, chain = life.contracts, life.contracts.vault, life.contracts.chain
    auditor = AUDITORS[3]
    chain.send(auditor, vault.address, vault.request_exit(AUDITOR_BOND))
    life.refused(auditor, vault.address, vault.withdraw())
    life.refused(auditor, vault.address, vault.request_exit(1))
    life.later(vault.exit_seconds())
    chain.send(auditor, vault.address, vault.withdraw())
    contracts.bond(auditor)


def _accounts_bonds(life: Life) -> None:
    contracts, gate, chain = life.contracts, life.contracts.gate, life.contracts.chain
    contracts.bond_account(A, 50)
    contracts.bond_account(B, 70)
    chain.send(ALICE, gate.address, gate.request_exit(20))
    life.refused(ALICE, gate.address, gate.withdraw())
    for auditor in AUDITORS[:QUORUM]:
        chain.send(auditor, gate.address, gate.accuse(B, 20, Digest(bytes([7]) * 32)))
    life.refused(AUDITORS[3], gate.address, gate.accuse(B, 20, Digest(bytes([8]) * 32)))
    life.later(gate.exit_seconds())
    chain.send(ALICE, gate.address, gate.withdraw())


def _announcements(life: Life) -> None:
    contracts, ledger, chain = life.contracts, life.contracts.ledger, life.contracts.chain

    def signed(statement: SuccessionNotice | SuccessionWithdrawal) -> list[bytes]:
        digest = statement.digest(contracts.domain)
        return [secp256k1.sign(bytes(signer.key), digest) for signer in AUDITORS[:QUORUM]]

    leaving, entering = address(AUDITORS[1]), address(keys(5))
    begins = ledger.current_epoch() + 9
    notice = SuccessionNotice(0, begins, Digest(b"\x05" * 32), leaving, entering)
    chain.send(BOB, ledger.address, ledger.announce(notice, signed(notice)))
    life.refused(BOB, ledger.address, ledger.announce(notice, signed(notice)))
    chain.send(BOB, ledger.address, ledger.withdraw_successor(signed(SuccessionWithdrawal(0))))
    notice = replace(notice, number=1)
    chain.send(BOB, ledger.address, ledger.announce(notice, signed(notice)))
    life.later(10 * EPOCH_SECONDS)
    contracts.bond(keys(5))


def _faucet(life: Life) -> None:
    chain, faucet = life.contracts.chain, life.contracts.faucet
    chain.send(BOB, faucet.address, faucet.drip(address(STRANGER)))
    life.refused(BOB, faucet.address, faucet.drip(address(STRANGER)))
    life.refused(BOB, faucet.address, faucet.drip(faucet.address))
