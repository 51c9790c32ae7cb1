"""The adapter for eae0a53; it can be imported only in that tree."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import trio
from findings.tree import AUDITORS, SLOTS, certificate_of, crowd, groups, tally
from sapo_client.node.archive import Archive
from sapo_client.node.auditor import Auditor, AuditorParts
from sapo_client.node.disputes import equivocations
from sapo_client.node.rounds import Author
from sapo_verification.certificates import CertificateBook
from sapo_verification.contributions import ContributionAdmission
from sapo_verification.payable import PayableCount
from support.ledger import AUDITOR_BOND, BUDGET_POINTS, QUORUM, Tree

from sapo_client.ledger.fraud import ContributionSum, CumulativeDecrease, CumulativeSum, OverCap, Unearned
from sapo_client.ledger.transactions import Refused
from sapo_client.observe.events import EventLog
from sapo_client.paths import DataDir
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.tasks import Task
from sapo_verification.signing import SigningDatabase
from sapo_verification.types import AdmittedRollout, VerifiedRollout


class _Chain:
    """What the auditor asks of the ledger, answered by the chain at once."""

    def __init__(self, contracts):
        self.contracts = contracts

    async def last_record(self):
        return self.contracts.history.last()

    async def live_record(self):
        return self.contracts.ledger.live()

    async def bonded_auditors(self):
        accounts = [one.account for one in AUDITORS]
        return {a for a in accounts if self.contracts.vault.bonded(a) >= AUDITOR_BOND}

    async def post(self, root, signatures):
        with suppress(Refused):
            self.contracts.post(root, signatures)


class _Silence:
    """A transport on which the test itself carries what is said."""

    async def publish(self, topic, message):
        pass


class _Seat:
    def __init__(self, contracts, identity, folder):
        self.contracts, self.identity, self.manifest = contracts, identity, contracts.manifest()
        data = DataDir(folder).create()
        self.archive = Archive(data.database, self.manifest.swarm_id)
        SigningDatabase(data.database)
        book, accounts = CertificateBook(self.manifest), tuple(one.account for one in AUDITORS)
        for one in AUDITORS:
            book.judge(certificate_of(one, self.manifest), self._now())
        self.auditor = Auditor(
            AuditorParts(
                manifest=self.manifest,
                author=Author(identity.seed, identity.node, identity.account),
                account_key=identity.secret,
                transport=_Silence(),
                ledger=_Chain(contracts),
                gossip=None,
                certificates=book,
                archive=self.archive,
                payable=PayableCount(),
                telemetry=SimpleNamespace(events=EventLog(folder / "events.jsonl")),
                clock=self._now,
            )
        )
        self.auditor._auditors, self.auditor._quorum = accounts, QUORUM
        self.auditor._epoch_budget = BUDGET_POINTS
        self.admission = ContributionAdmission(self.manifest, book, self.archive.has, lambda: accounts)

    def _now(self):
        return self.contracts.chain.now_seconds

    def hear(self, messages):
        for message in messages:
            with suppress(RemoteProtocolError):
                admitted = self.admission.judge(message, self._now())
                self.archive.add(admitted.content_id, admitted.kind, admitted.content, message)

    def said(self):
        return self.archive.envelopes(0)

    def look(self, epoch):
        trio.run(self.auditor._advance, epoch)

    def accuse(self, epoch):
        for proof in equivocations(self.archive, epoch, self.contracts.domain).values():
            self.contracts.prove(proof)


def seat(contracts, identity, folder):
    return _Seat(contracts, identity, folder)


def accuse(contracts, before, points, after):
    trees = {
        name: Tree(values) for name, values in (("before", before), ("points", points), ("after", after))
    }
    proofs = [
        ContributionSum(sorted(points.items())),
        CumulativeSum(sorted(after.items())),
        *(OverCap(account, count, trees["points"].proof(account)) for account, count in points.items()),
    ]
    for account in {*before} & {*after}:
        old, new = trees["before"].proof(account), trees["after"].proof(account)
        proofs.append(CumulativeDecrease(account, before[account], old, after[account], new))
    for account, value in after.items():
        leaves = sorted(before.items()), sorted(points.items())
        proofs.append(Unearned(account, value, trees["after"].proof(account), *leaves))
    convicting = []
    for proof in proofs:
        with suppress(Refused):
            contracts.prove(proof)
            convicting.append(proof.FUNCTION)
    return convicting


def vast_tally(identity, manifest, epoch):
    return tally(identity, manifest, epoch, dict.fromkeys(crowd(2000), 1))


def unearned_proof(contracts, count):
    accounts = crowd(count)
    leaves = [(account, 1) for account in accounts]
    tree = Tree(dict.fromkeys(accounts, 2))
    proof = Unearned(accounts[0], 3, tree.proof(accounts[0]), leaves, leaves)
    return contracts.verifier.prove(proof)


def doubt(contracts, account):
    """Nothing: a root whose leaves are hidden cannot be questioned."""


def pay(chances):
    author, count = AUDITORS[0], PayableCount()
    for epoch, chance in enumerate(chances):
        for slot, rewards in enumerate(groups(epoch, [chance] * SLOTS)):
            rollout = author.rollout(epoch=epoch, slot=slot)
            id_ = ContentId(bytes([epoch, slot]) + bytes(30))
            count.record(VerifiedRollout(AdmittedRollout(id_, rollout), Task(0, 0), "", rewards))
    points = [dict(count.points(epoch, [author.account], SLOTS)) for epoch in range(len(chances))]
    return [earned.get(author.account, 0) for earned in points]
