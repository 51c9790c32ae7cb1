"""The adapter for this tree."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from findings.today_pay import pay
from findings.tree import AUDITORS, Bonded, Points, certificate_of, crowd
from support.ledger import AUDITOR_BOND, BOB, BUDGET_POINTS, DEPLOYER, POINTS_CAP, QUORUM, Contracts, Tree

from sapo_client.ledger.fraud import AccountPlaces, Balance, FraudProof, OverCap
from sapo_client.ledger.transactions import Refused
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState
from sapo_client.node.auditing.disputes import equivocations
from sapo_client.node.runtime.context import Author
from sapo_client.paths import DataDir
from sapo_protocol import merkle
from sapo_protocol.contributions import Tally, page_digest, to_pages
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import AuditorSet, ContributionAdmission
from sapo_verification.signing.database import SigningDatabase

__all__ = ["accuse", "doubt", "pay", "seat", "unearned_proof", "vast_tally"]

ACCOUNTS = Auditors(tuple(one.account for one in AUDITORS))


class StoredAuditor:
    """An auditor's agreement with its real stores and admission, on a real ledger."""

    def __init__(self, contracts: Contracts, identity: Bonded, folder: Path) -> None:
        self.identity = identity
        self._contracts, self._manifest = contracts, contracts.manifest()
        data = DataDir(folder).create()
        self._contributions = ContributionStore(data.database, self._manifest.swarm_id)
        certificates = CertificateStore(self._manifest)
        for one in AUDITORS:
            certificates.admit(certificate_of(one, self._manifest), self._now)
        self._admission = ContributionAdmission(
            self._manifest, certificates, self._contributions, lambda: AuditorSet(ACCOUNTS)
        )
        self._agreement = Agreement(
            author=Author(identity.seed, identity.node, identity.account),
            account_key=identity.secret,
            manifest=self._manifest,
            terms=AgreementTerms(ACCOUNTS.of, QUORUM, POINTS_CAP, BUDGET_POINTS),
            contributions=self._contributions,
            signing=SigningDatabase(data.database),
        )

    @property
    def _now(self) -> float:
        return self._contracts.chain.now_seconds

    def hear(self, messages: Iterable[bytes]) -> None:
        """Admit and store messages; those that are refused are dropped."""
        for message in messages:
            with suppress(RemoteProtocolError):
                admitted = self._admission.admit(message, self._now)
                self._contributions.add(
                    admitted.content_id, admitted.kind, admitted.content, message, received_seconds=self._now
                )

    def said(self) -> tuple[bytes, ...]:
        """Return all messages that it holds, its own included."""
        return self._contributions.envelopes(0)

    def look(self, epoch: int) -> None:
        """Take a step; what it would post is sent."""
        ledger = self._contracts.ledger
        for postable in self._agreement.step(self._now, self._state()).postings:
            with suppress(Refused):
                data = ledger.post(postable.statement, postable.signatures)
                self._contracts.chain.send(BOB, ledger.address, data)

    def accuse(self, epoch: int) -> None:
        """Prove to the contract that auditors signed two roots, where its messages tell so."""
        for proof in equivocations(self._contributions, epoch, self._contracts.domain).values():
            self._contracts.prove(proof)

    def _state(self) -> ChainState:
        contracts = self._contracts
        last, live = contracts.history.last(), contracts.ledger.live()
        bonded = {one.account for one in AUDITORS if contracts.vault.bonded(one.account) >= AUDITOR_BOND}
        return ChainState(
            last=last.root if last else None,
            live=live.root if live else None,
            granted_points=contracts.distributor.granted_points(),
            bonded=frozenset(bonded),
            live_signatures=live.signers.bit_count() if live else 0,
        )


def seat(contracts: Contracts, identity: Bonded, folder: Path) -> StoredAuditor:
    """Return an auditor of a ledger of ``support.ledger.found``."""
    return StoredAuditor(contracts, identity, folder)


def accuse(contracts: Contracts, before: Points, points: Points, after: Points) -> list[str]:
    """Try every proof against the live posting that its trees allow; return those that convict."""
    trees = [Tree(dict(values)) for values in (before, points, after)]
    proofs: list[FraudProof] = [OverCap(account, trees[1].place(account)) for account in points]
    proofs.extend(
        Balance(AccountPlaces(account, *(tree.place(account) for tree in trees)))
        for account in {**before, **points, **after}
    )
    convicting = []
    for proof in proofs:
        with suppress(Refused):
            contracts.prove(proof)
            convicting.append(proof.FUNCTION)
    return convicting


def vast_tally(identity: Bonded, manifest: Manifest, epoch: int) -> bytes:
    """Return a tally of five thousand accounts, whose pages nobody gets."""
    points = [(account, 1) for account in crowd(5000)]
    message = Tally(
        node=identity.node,
        account=identity.account,
        epoch=epoch,
        points=points,
        evidence_root=merkle.EMPTY_ROOT,
        pages=tuple(map(page_digest, to_pages(points))),
    )
    return seal(Kind.TALLY, manifest.swarm_id, message.to_payload(), identity.seed).to_bytes()


def unearned_proof(contracts: Contracts, count: int) -> bytes:
    """Return the call that proves, among so many accounts, that one has a point too many."""
    accounts = crowd(count)
    before, points = Tree(dict.fromkeys(accounts, 1)), Tree(dict.fromkeys(accounts, 1))
    after = Tree({**dict.fromkeys(accounts, 2), accounts[0]: 3})
    places = AccountPlaces(accounts[0], *(tree.place(accounts[0]) for tree in (before, points, after)))
    return contracts.verifier.prove(Balance(places))


def doubt(contracts: Contracts, account: Account) -> None:
    """Ask for the account's leaves in the live posting, and have it rejected once the answer is overdue."""
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    chain.now_seconds = chain.engine.head.timestamp + 1
    chain.send(DEPLOYER, token.address, token.approve(verifier.address, verifier.question_bond()))
    chain.send(DEPLOYER, verifier.address, verifier.ask(account))
    chain.now_seconds = chain.engine.head.timestamp + verifier.answer_seconds()
    chain.send(BOB, verifier.address, verifier.prove_hidden(account))
