"""A data directory of a node, whose messages and postings a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.auditor_harness import AUDITORS, KINDS, WORKERS, Funded, World
from support.ledger import BUDGET_POINTS, POINTS_CAP, keys, sign

from sapo_client.config import Config, LedgerConfig
from sapo_client.paths import DataDir
from sapo_protocol.contributions import Approval, Proposal, Share, Tally, settle
from sapo_protocol.envelope import seal
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.contribution_store import ContributionStore

EPOCH = 3
ALICE, BOB = (person.account for person in WORKERS)
STRANGER = Funded(14)
CAP = POINTS_CAP
EVIDENCE = Digest(bytes(32))


class EpochHarness:
    """A data directory with the messages that a node received, and the posting that follows from them."""

    def __init__(self, root: Path, world: World) -> None:
        self.world, self.manifest = world, world.manifest
        self.data = DataDir(root / "node").create()
        self.data.manifest.write_text(manifest_to_json(self.manifest), encoding="utf-8")
        self._archive = ContributionStore(self.data.database, self.manifest.swarm_id)
        certificates = CertificateStore(self.manifest, self.data.database)
        for person in (*AUDITORS, STRANGER):
            begin = self.manifest.genesis_seconds
            certificate = person.certificate(self.manifest, begin, begin + 86_400)
            certificates.admit(certificate.to_bytes(), begin)

    @property
    def config(self) -> Config:
        """Return the configuration of commands in this directory."""
        urls = LedgerConfig(rpc_urls=(self.world.chain.url,))
        return Config(data_dir=self.data.root, ledger=urls)

    def hear(self, person: Funded, message: Tally | Proposal | Approval) -> ContentId:
        """Store a signed message."""
        kind = KINDS[type(message)]
        envelope = seal(kind, self.manifest.swarm_id, message.to_payload(), person.seed)
        self._archive.add(envelope.content_id, kind, message, envelope.to_bytes())
        return envelope.content_id

    def tally(self, person: Funded, alice: int, bob: int) -> tuple[ContentId, Tally]:
        """Store an auditor's tally."""
        points = tuple(sorted(((ALICE, alice), (BOB, bob))))
        tally = Tally(
            node=person.node, account=person.account, epoch=EPOCH, points=points, evidence_root=EVIDENCE
        )
        return self.hear(person, tally), tally

    def post(
        self,
        taken: Sequence[tuple[ContentId, Tally]],
        shares: tuple[Share, ...] | None = None,
        *,
        budget: int = BUDGET_POINTS,
    ) -> ContentId:
        """Post a proposal of the first auditor, signed by a quorum, and store it; return its id."""
        proposer = AUDITORS[0]
        settled = settle([tally for _, tally in taken], {}, points_per_epoch=CAP, epoch_budget=budget)
        ids = tuple(sorted(id_ for id_, _ in taken))
        proposal = Proposal(
            node=proposer.node, account=proposer.account, epoch=EPOCH, tallies=ids, shares=shares or settled
        )
        self.post_unheard(proposal)
        return self.hear(proposer, proposal)

    def post_unheard(self, proposal: Proposal) -> None:
        """Post a proposal of the first auditor, signed by a quorum, that this node has not received."""
        kind = KINDS[Proposal]
        envelope = seal(kind, self.manifest.swarm_id, proposal.to_payload(), AUDITORS[0].seed)
        content_id = envelope.content_id
        contracts = self.world.contracts
        root = proposal.root(content_id)
        contracts.post(root, sign(root, contracts.domain, [keys(person.number) for person in AUDITORS[:2]]))
