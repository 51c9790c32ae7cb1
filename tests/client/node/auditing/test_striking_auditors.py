"""f of n auditors split the others, and strike their own signatures again and again: every epoch is final."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.agreement_world import (
    BUDGET,
    EARNERS,
    POINTS_CAP,
    AgreementOutcome,
    AgreementWorld,
    FaultRates,
    HonestAuditor,
)
from support.swarm import Identity

from sapo_client.ledger.fraud import by_signer
from sapo_protocol import merkle, secp256k1
from sapo_protocol.constants import SETTLED_EPOCHS
from sapo_protocol.contributions import Approval, Proposal, Tally, parse_approval, settle
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.settlement import (
    grace_seconds,
    max_faulty,
    turn_begin_seconds,
    turn_count,
    turn_to_propose,
)
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark

_LOOK_SECONDS = 0.5


class StrikingWorld(AgreementWorld):
    """The liars have as many honest auditors sign one root as they need, and the others another one.

    They post the first with their own signatures. From the end of the window on they strike these after every
    posting at once, bond again, and sign the live root in the present turn, so that it is posted with their
    signatures.

    Attributes:
        strikes: number of bonds that they lost.
        ages: seconds from each epoch's end until it was final.
    """

    def __init__(self, seed: int, auditors: int) -> None:
        no_faults = FaultRates(slow=0.0, crash=0.0, outage=0.0)
        liars = max_faulty(auditors)
        super().__init__(seed, auditors=auditors, liars=liars, fault_rates=no_faults, first_waits=False)
        self.strikes, self.ages = 0, dict[int, float]()
        self._split: dict[int, tuple[ContentId, Proposal]] = {}
        self._signed: set[tuple[EpochRoot, int]] = set()
        self._at(self.now, self._look)

    def _lie_in_tallies(self, epoch: int) -> None:
        """Publish plausible tallies, so that there are two settlements."""
        for liar in self.liars:
            points = tuple((account, POINTS_CAP - 1) for account in EARNERS)
            tally = Tally(liar.node, liar.account, epoch, points, merkle.EMPTY_ROOT)
            self._forward(self._seal(liar, tally), self.honest)

    def _lie_in_turn(self, epoch: int, turn: int) -> None:
        proposer = self.auditors[(epoch + turn) % len(self.auditors)]
        liar = next((liar for liar in self.liars if liar.account == proposer), None)
        state, source = self.ledger.state(), self.honest[0].contributions
        previous = self._previous(source)
        if liar is None or state.live is not None or previous is None or epoch in self._split:
            return
        tallies = list(source.tallies(epoch).items())
        enough = self.terms.quorum - len(self.liars)
        for number, chosen in enumerate((tallies[: self.terms.quorum], tallies[-self.terms.quorum :])):
            shares = settle(
                [tally for _, tally in chosen], previous, points_per_epoch=POINTS_CAP, epoch_budget=BUDGET
            )
            ids = tuple(sorted(content_id for content_id, _ in chosen))
            proposal = Proposal(liar.node, liar.account, epoch, ids, shares, turn)
            content_id = self._whisper(
                liar, proposal, self.honest[enough:] if number else self.honest[:enough]
            )
            if not number:
                self._split[epoch] = content_id, proposal
                for each in self.liars:
                    self._approve(each, content_id, proposal)
        content_id, proposal = self._split[epoch]
        signatures = [signature for _, signature in sorted(self._signatures[content_id, turn].items())]
        if self.ledger.post(self.now, proposal.approval(content_id), signatures):
            self.happened["posted with liars"] += 1

    def _whisper(self, liar: Identity, proposal: Proposal, receivers: list[HonestAuditor]) -> ContentId:
        """Let some of the honest auditors receive and approve a proposal before any other."""
        envelope = seal(Kind.PROPOSAL, self.manifest.swarm_id, proposal.to_payload(), liar.seed)
        for receiver in receivers:
            receiver.heard.add(envelope.content_id)
            if receiver.receive(envelope.to_bytes()):
                self._act(receiver)
        self._forward(envelope, self.honest)
        return envelope.content_id

    def _finalise(self) -> bool:
        is_final = super()._finalise()
        if is_final:
            epoch = self.ledger.final[-1].epoch
            self.ages[epoch] = self.now - epoch_start_seconds(self.manifest, epoch + 1)
        return is_final

    def _post(self, statement: EpochApproval, signatures: Sequence[bytes]) -> None:
        super()._post(statement, signatures)
        self._attack()

    def _look(self) -> None:
        self._at(self.now + _LOOK_SECONDS, self._look)
        self._attack()

    def _attack(self) -> None:
        live = self.ledger.live
        if live is None or live.epoch not in self._split:
            return
        if self.now < self.ledger.posted_seconds + self.ledger.challenge_seconds - _LOOK_SECONDS:
            return
        age_seconds = self.now - epoch_start_seconds(self.manifest, live.epoch + 1)
        turn, _ = turn_to_propose(self.manifest, age_seconds)
        for liar in self.liars:
            if liar.account in self.ledger._signers:
                self._strike(liar, live)
            self.ledger.bond(liar.account)
            if (live, turn) not in self._signed:
                self._sign_again(liar, live, turn)
        self._signed.add((live, turn))

    def _strike(self, liar: Identity, live: EpochRoot) -> None:
        self.strikes += 1
        pair = [EpochApproval(10_000 + self.strikes, _other(live, archive)) for archive in (b"\x01", b"\x02")]
        domain = self.manifest.ledger_domain
        of_a, of_b = (secp256k1.sign(liar.secret, each.digest(domain)) for each in pair)
        assert self.ledger.prove_equivocation(pair[0], pair[1], (of_a, of_b))

    def _sign_again(self, liar: Identity, live: EpochRoot, turn: int) -> None:
        digest = EpochApproval(turn, live).digest(self.manifest.ledger_domain)
        content_id = ContentId(live.archive_digest)
        signature = secp256k1.sign(liar.secret, digest)
        approval = Approval(liar.node, liar.account, live.epoch, content_id, signature, turn)
        self._forward(self._seal(liar, approval), self.honest)


def _other(live: EpochRoot, archive: bytes) -> EpochRoot:
    return EpochRoot(
        live.epoch,
        live.base_root,
        live.contribution_root,
        live.cumulative_root,
        live.total,
        Digest(archive * Digest.SIZE),
    )


@pytest.mark.parametrize("auditors", [4, 7, 10])
def test_auditors_that_split_and_strike_prevent_no_settlement(auditors: int) -> None:
    world = StrikingWorld(auditors, auditors)
    epochs = 6
    assert world.run(epochs) == AgreementOutcome(
        epochs, stopped=0, outside=0, honest_bonds_lost=0, unexplained=0
    )
    assert world.happened["posted with liars"] > 0
    assert 0 < world.strikes < 3 * epochs * len(world.liars)
    assert max(world.ages.values()) < world.manifest.epoch_seconds


def test_after_the_deadline_the_live_root_is_approved_in_the_last_turn() -> None:
    """A posting may lose its quorum when its epoch has no further turn; the next epoch waits for it."""
    world = AgreementWorld(1, auditors=4, liars=1, silent=True, first_waits=False)
    end, domain, points = world._end(0), world.manifest.ledger_domain, tuple((a, 5) for a in EARNERS)
    world.now = end + grace_seconds(world.manifest)
    for author in world.honest:
        tally = author.agreement.tally(0, points, merkle.EMPTY_ROOT, world.now)
        for other in world.honest:
            other.receive(tally.to_bytes())
    liar, [first, second, third] = world.liars[0], world.honest
    turn = next(k for k in range(4) if world.auditors[k % 4] == liar.account)
    world.now = end + turn_begin_seconds(world.manifest, turn)
    tallies = first.contributions.tallies(0)
    shares = settle([*tallies.values()], {}, points_per_epoch=POINTS_CAP, epoch_budget=BUDGET)
    proposal = Proposal(liar.node, liar.account, 0, tuple(sorted(tallies)), shares, turn)
    envelope = world._seal(liar, proposal)
    third.signing.approve(
        ApprovalMark(world.manifest.swarm_id, third.identity.account, 0, turn, UNKNOWN_ROOT)
    )
    signed = [secp256k1.sign(liar.secret, proposal.approval(envelope.content_id).digest(domain))]
    for auditor in world.honest:
        auditor.receive(envelope.to_bytes())
        step = auditor.agreement.step(world.now, world.ledger.state())
        signed += [parse_approval(each.payload).signature for each in step.messages]
    statement = proposal.approval(envelope.content_id)
    world.now = epoch_start_seconds(world.manifest, SETTLED_EPOCHS + 1) + 1
    assert world.ledger.post(world.now, statement, by_signer(statement.digest(domain), signed))
    world.ledger._signers.discard(liar.account)

    last = turn_count(world.manifest) - 1
    messages = [
        message
        for auditor in world.honest
        for message in auditor.agreement.step(world.now, world.ledger.state()).messages
    ]
    assert [parse_approval(each.payload).turn for each in messages] == [last] * 3
    for auditor in world.honest:
        for message in messages:
            auditor.receive(message.to_bytes())
    [posting] = second.agreement.step(world.now, world.ledger.state()).postings
    assert posting.statement == EpochApproval(last, statement.root)
    assert world.ledger.post(world.now, posting.statement, posting.signatures)
    assert world.ledger.finalise(world.now + world.ledger.challenge_seconds)
