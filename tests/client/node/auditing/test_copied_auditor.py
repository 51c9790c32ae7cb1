"""An honest operator copies an auditor's directory; a lying auditor shows each copy another proposal."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.agreement_world import BUDGET, EARNERS, POINTS_CAP, AgreementWorld, HonestAuditor
from support.swarm import Identity

from sapo_client.ledger.fraud import by_signer
from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.auditing.agreement import Agreement
from sapo_client.node.auditing.approvals import Approver
from sapo_client.node.auditing.disputes import equivocations
from sapo_client.node.runtime.context import Author
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Approval, Proposal, parse_approval, parse_proposal, settle
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.settlement import grace_seconds, turn_begin_seconds
from sapo_verification.signing.database import ApprovalMark, SigningDatabase


@dataclass
class Copy:
    """One process with the copied identity: the auditor, and what it has sent."""

    auditor: HonestAuditor
    sent: list[SignedEnvelope]


class SplitEpoch:
    """Epoch 0 of four auditors, one of whom lies: two valid proposals of its first turn.

    Attributes:
        turn: of the two proposals.
        shown: the proposals as messages.
    """

    def __init__(self) -> None:
        self.world = world = AgreementWorld(1, auditors=4, liars=1, silent=True)
        self.copied: Identity = world.honest[0].identity
        end, [liar] = world._end(0), world.liars
        world.now = end + grace_seconds(world.manifest)
        points = [tuple((account, 5 + number) for account in EARNERS) for number in range(3)]
        self.tallies = [
            auditor.agreement.tally(0, own, merkle.EMPTY_ROOT, world.now)
            for auditor, own in zip(world.honest, points, strict=True)
        ]
        self.turn = next(k for k in range(4) if world.auditors[k % 4] == liar.account)
        world.now = end + turn_begin_seconds(world.manifest, self.turn)
        source = world.honest[1]
        for tally in self.tallies:
            source.receive(tally.to_bytes())
        false = world._seal(
            liar,
            replace(
                source.contributions.tallies(0)[self.tallies[0].content_id],
                node=liar.node,
                account=liar.account,
            ),
        )
        self.tallies.append(false)
        source.receive(false.to_bytes())
        self.shown = [self._propose(liar, source, without) for without in (0, 3)]

    def _propose(self, liar: Identity, source: HonestAuditor, without: int) -> SignedEnvelope:
        """Return the settlement of three of the four tallies."""
        known = source.contributions.tallies(0)
        chosen = {
            tally.content_id: known[tally.content_id]
            for number, tally in enumerate(self.tallies)
            if number != without
        }
        shares = settle([*chosen.values()], {}, points_per_epoch=POINTS_CAP, epoch_budget=BUDGET)
        proposal = Proposal(liar.node, liar.account, 0, tuple(sorted(chosen)), shares, self.turn)
        return self.world._seal(liar, proposal)

    def open(self, *, machine: MachineApprovals | None = None, wait_seconds: float = 0.0) -> Copy:
        """Return a copy that was made before anything was signed, and has heard the tallies."""
        world = self.world
        auditor = HonestAuditor(world, self.copied)
        auditor.signing = SigningDatabase(":memory:")
        self.start(auditor, machine, wait_seconds)
        for tally in self.tallies:
            auditor.receive(tally.to_bytes())
        return Copy(auditor, [])

    def start(
        self, auditor: HonestAuditor, machine: MachineApprovals | None, wait_seconds: float = 0.0
    ) -> None:
        """Start its process, again if it ran before."""
        identity = self.copied
        auditor.agreement = Agreement(
            author=Author(identity.seed, identity.node, identity.account),
            account_key=identity.secret,
            manifest=self.world.manifest,
            terms=self.world.terms,
            contributions=auditor.contributions,
            signing=auditor.signing,
            machine=machine,
            wait_seconds=wait_seconds,
        )

    def show(self, copy: Copy, *messages: SignedEnvelope) -> list[Approval]:
        """Let a copy receive messages and take a step; return what it approves."""
        for message in messages:
            copy.auditor.receive(message.to_bytes())
        step = copy.auditor.agreement.step(self.world.now, self.world.ledger.state())
        copy.sent += step.messages
        return [parse_approval(each.payload) for each in step.messages if each.kind is Kind.APPROVAL]

    def machine(self, folder: Path, identity: Identity | None = None) -> MachineApprovals:
        """Return what the account signed on a machine whose locks are in a folder."""
        node = (identity or self.copied).node
        return MachineApprovals(folder, account=self.copied.account, node=node)

    def convictions(self, *copies: Copy) -> int:
        """Return how many proofs against the copied auditor somebody has who heard everything."""
        witness = self.world.honest[1]
        for message in (*self.shown, *(each for copy in copies for each in copy.sent)):
            witness.receive(message.to_bytes())
        found = equivocations(witness.contributions, 0, self.world.manifest.ledger_domain)
        return sum(auditor == self.copied.account for auditor, _ in found)


def test_the_two_proposals_convict_who_signs_both() -> None:
    """Both sign at the same moment, so that neither hears the other: this is what remains possible."""
    epoch = SplitEpoch()
    first, second = epoch.open(), epoch.open()
    assert len(epoch.show(first, epoch.shown[0])) == len(epoch.show(second, epoch.shown[1])) == 1
    assert epoch.convictions(first, second) == 1


def test_a_copy_that_hears_the_other_approve_signs_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    epoch = SplitEpoch()
    first, second = epoch.open(), epoch.open()
    epoch.show(first, epoch.shown[0])
    with caplog.at_level(logging.ERROR):
        assert epoch.show(second, *first.sent, *epoch.shown) == []
    assert "another process approves as this auditor" in caplog.text
    assert epoch.convictions(first, second) == 0
    assert len(epoch.show(first, epoch.shown[1])) == 0, "it was never mistaken about itself"


@pytest.mark.parametrize("first_waits", [0.0, 20.0, 50.0])
def test_a_copys_first_approval_waits_and_hears_the_other(first_waits: float) -> None:
    """The proposals are shown to both at once; before, both signed at once, and neither heard the other."""
    epoch = SplitEpoch()
    begin = epoch.world.now
    copies = [epoch.open(wait_seconds=first_waits), epoch.open(wait_seconds=30.0)]
    for copy, shown in zip(copies, epoch.shown, strict=True):
        epoch.show(copy, shown)
    for seconds in range(60):
        epoch.world.now = begin + seconds
        heard = [list(copy.sent) for copy in copies[::-1]]
        for copy, messages in zip(copies, heard, strict=True):
            epoch.show(copy, *messages)
    approved = [any(each.kind is Kind.APPROVAL for each in copy.sent) for copy in copies]
    assert approved == [first_waits < 30.0, first_waits > 30.0]
    assert epoch.convictions(*copies) == 0


def race(rng: random.Random, *, first_runs: bool, wait_seconds: float, travel_seconds: float) -> bool:
    """Return whether both copies sign; each takes a step every second, at a moment of its own.

    Args:
        first_runs: whether the first copy has approved before, so that it waits no more; its proposal then
            arrives at any moment of the second one's wait.
        travel_seconds: time in which a copy hears what the other has sent.
    """
    epoch = SplitEpoch()
    begin = epoch.world.now
    waits = [0.0 if first_runs else wait_seconds * rng.random(), wait_seconds * rng.random()]
    copies = [epoch.open(wait_seconds=wait) for wait in waits]
    arriving = [
        (wait_seconds * rng.random() if first_runs else 0.0, 0, epoch.shown[0]),
        (0.0, 1, epoch.shown[1]),
    ]
    phases = rng.random(), rng.random()
    steps = sorted((k + phases[who], who) for who in range(2) for k in range(int(wait_seconds) + 5))
    for now, who in steps:
        epoch.world.now = begin + now
        known = len(copies[who].sent)
        epoch.show(copies[who], *(message for at, to, message in arriving if to == who and at <= now))
        arriving = [each for each in arriving if each[1] != who or each[0] > now]
        arriving += [(now + travel_seconds, 1 - who, sent) for sent in copies[who].sent[known:]]
    return epoch.convictions(*copies) > 0


@pytest.mark.long
@pytest.mark.parametrize("first_runs", [False, True])
@pytest.mark.parametrize(
    ("wait_seconds", "travel_seconds", "most"), [(0.0, 1.0, 60), (60.0, 1.0, 3), (60.0, 3.0, 9)]
)
def test_processes_seldom_sign_before_they_hear_each_other(
    first_runs: bool, wait_seconds: float, travel_seconds: float, most: int
) -> None:
    rng = random.Random(7)
    times = {"wait_seconds": wait_seconds, "travel_seconds": travel_seconds}
    convicted = sum(race(rng, first_runs=first_runs, **times) for _ in range(60))
    assert convicted == 60 if not wait_seconds else convicted <= most


def test_only_the_first_approval_waits() -> None:
    epoch = SplitEpoch()
    begin, copy = epoch.world.now, epoch.open(wait_seconds=30.0)
    assert epoch.show(copy, epoch.shown[0]) == []
    epoch.world.now = begin + 29.0
    assert epoch.show(copy) == []
    epoch.world.now = begin + 30.0
    assert [each.turn for each in epoch.show(copy)] == [epoch.turn]
    later = next(
        turn
        for turn in range(epoch.turn + 1, epoch.turn + 5)
        if epoch.world.auditors[turn % 4] == epoch.copied.account
    )
    epoch.world.now = epoch.world._end(0) + turn_begin_seconds(epoch.world.manifest, later)
    assert [each.turn for each in epoch.show(copy)] == [later], "its own proposal, approved at once"


def test_a_copy_that_heard_the_other_approve_does_not_forget_it_in_later_epochs() -> None:
    """It searches every epoch that is not settled, and of a later one the other may have said nothing yet."""
    epoch = SplitEpoch()
    first, second = epoch.open(), epoch.open()
    [heard] = epoch.show(first, epoch.shown[0])
    for message in first.sent:
        second.auditor.receive(message.to_bytes())
    identity, stores = epoch.copied, second.auditor
    author = Author(identity.seed, identity.node, identity.account)
    approver = Approver(author, identity.secret, epoch.world.manifest, stores.contributions, stores.signing)
    for number in (0, 1):
        approver.listen(number)
        assert approver.elsewhere == heard


def test_a_copy_that_heard_the_other_approve_adds_no_signature_to_a_live_posting() -> None:
    """A posting that lost its quorum is approved again in every turn, by one of the two."""
    epoch = SplitEpoch()
    world, content_id = epoch.world, epoch.shown[0].content_id
    statement = parse_proposal(epoch.shown[0].payload).approval(content_id)
    digest = statement.digest(world.manifest.ledger_domain)
    [liar] = world.liars
    secrets = [liar.secret, *(each.identity.secret for each in world.honest[1:])]
    signatures = by_signer(digest, [secp256k1.sign(secret, digest) for secret in secrets])
    assert world.ledger.post(world.now, statement, signatures)
    world.ledger._signers.discard(liar.account)
    first, second = epoch.open(), epoch.open()
    begins = [turn_begin_seconds(world.manifest, epoch.turn + later) for later in (1, 2)]
    world.now = world._end(0) + begins[0]
    assert [each.turn for each in epoch.show(first, epoch.shown[0])] == [epoch.turn + 1]
    world.now = world._end(0) + begins[1]
    assert epoch.show(second, epoch.shown[0], *first.sent) == []
    assert [each.turn for each in epoch.show(first)] == [epoch.turn + 2]


def test_an_auditor_that_restarts_hears_itself_and_signs_on(tmp_path: Path) -> None:
    epoch = SplitEpoch()
    copy = epoch.open(machine=epoch.machine(tmp_path))
    assert len(epoch.show(copy, epoch.shown[0])) == 1
    epoch.start(copy.auditor, epoch.machine(tmp_path))
    epoch.show(copy, *copy.sent)
    later = epoch.turn + 1
    proposer = next(
        each for each in epoch.world.honest if each.identity.account == epoch.world.auditors[later % 4]
    )
    epoch.world.now = epoch.world._end(0) + turn_begin_seconds(epoch.world.manifest, later)
    for tally in epoch.tallies:
        proposer.receive(tally.to_bytes())
    messages = proposer.agreement.step(epoch.world.now, epoch.world.ledger.state()).messages
    if proposer.identity == epoch.copied:
        assert len(epoch.show(copy)) == 1
    else:
        assert [each.turn for each in epoch.show(copy, *messages)] == [later]


@pytest.mark.parametrize("other_key", [False, True])
def test_a_second_directory_of_one_machine_knows_what_the_first_approved(
    tmp_path: Path, other_key: bool
) -> None:
    """It need not have heard it, and may have another of the account's node keys."""
    epoch, folder = SplitEpoch(), tmp_path / "made with the first approval"
    first = epoch.open(machine=epoch.machine(folder))
    second = epoch.open(machine=epoch.machine(folder, Identity(77) if other_key else None))
    assert len(epoch.show(first, epoch.shown[0])) == 1
    assert epoch.show(second, epoch.shown[1]) == []
    assert epoch.convictions(first, second) == 0


def test_a_second_directory_may_approve_the_same_root(tmp_path: Path) -> None:
    epoch = SplitEpoch()
    first = epoch.open(machine=epoch.machine(tmp_path))
    second = epoch.open(machine=epoch.machine(tmp_path))
    for copy in (first, second):
        assert len(epoch.show(copy, epoch.shown[0])) == 1
    assert epoch.convictions(first, second) == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"approvals": {"aa": {"epoch": -1, "turn": 0, "root": ""}}}']
)
def test_a_damaged_file_prevents_no_approval(tmp_path: Path, content: bytes) -> None:
    epoch = SplitEpoch()
    first = epoch.open(machine=epoch.machine(tmp_path))
    epoch.show(first, epoch.shown[0])
    [file] = tmp_path.iterdir()
    file.write_bytes(content)
    second = epoch.open(machine=epoch.machine(tmp_path))
    assert len(epoch.show(second, epoch.shown[0])) == 1


def test_without_a_writable_folder_an_auditor_signs_on(tmp_path: Path) -> None:
    epoch = SplitEpoch()
    (blocked := tmp_path / "file").write_bytes(b"")
    copy = epoch.open(machine=epoch.machine(blocked))
    assert len(epoch.show(copy, epoch.shown[0])) == 1


def test_the_approvals_of_one_swarm_are_kept_beside_those_of_another(tmp_path: Path) -> None:
    epoch = SplitEpoch()
    account, swarms = epoch.copied.account, [SwarmId(bytes([number]) * 32) for number in (1, 2)]
    for swarm in swarms:
        assert epoch.machine(tmp_path).approve(ApprovalMark(swarm, account, 5, 1, Digest(bytes(32))))
    other = [ApprovalMark(swarm, account, 5, 1, Digest(b"\1" * 32)) for swarm in swarms]
    assert [epoch.machine(tmp_path).approve(mark) for mark in other] == [False, False]
