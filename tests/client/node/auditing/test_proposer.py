"""What an honest proposer sends in its turn: one proposal, of the tallies of a quorum."""

from __future__ import annotations

from support.agreement_world import EARNERS, AgreementWorld

from sapo_protocol import merkle
from sapo_protocol.envelope import Kind
from sapo_protocol.settlement import grace_seconds, proposer, turn_begin_seconds


class ProposerHarness:
    """The first turn after epoch 0 of four honest auditors, whose counts differ."""

    def __init__(self, points: int = 5) -> None:
        self.world = world = AgreementWorld(1, auditors=4, liars=0, silent=True, first_waits=False)
        self.grace_seconds = grace_seconds(world.manifest)
        self.begin_seconds = world._end(0) + turn_begin_seconds(world.manifest, 0)
        world.now = world._end(0) + self.grace_seconds
        account = proposer(world.auditors, 0, 0)
        [self.proposer] = [each for each in world.honest if each.identity.account == account]
        tallies = {
            each.identity.account: each.agreement.tally(
                0,
                tuple((earner, points + number * (points > 0)) for earner in EARNERS),
                merkle.EMPTY_ROOT,
                world.now,
            ).to_bytes()
            for number, each in enumerate(world.honest)
        }
        del tallies[account]  # it has its own one
        self.others = [*tallies.values()]

    def hear(self, *tallies: bytes) -> None:
        assert [self.proposer.receive(each) for each in tallies] == [True] * len(tallies)

    def sent(self, seconds: float = 0.0, *, turn: int = 0) -> list[Kind]:
        """Return what it sends so many seconds after a turn's beginning."""
        manifest = self.world.manifest
        self.world.now = self.world._end(0) + turn_begin_seconds(manifest, turn) + seconds
        step = self.proposer.agreement.step(self.world.now, self.world.ledger.state())
        assert step.postings == (), "its own approval is none of a quorum"
        return [message.kind for message in step.messages]


def test_nothing_is_proposed_without_the_tallies_of_a_quorum() -> None:
    harness = ProposerHarness()
    harness.hear(harness.others[0])
    assert harness.sent() == []


def test_one_proposal_is_made_in_a_turn_whatever_counts_later_in_it() -> None:
    """Of two of one turn it could approve only one, and some auditors would approve the other.

    A tally counts half a grace after it was received.
    """
    harness = ProposerHarness()
    harness.hear(*harness.others[:2])
    harness.world.now = harness.begin_seconds - 0.4 * harness.grace_seconds
    harness.hear(harness.others[2])
    assert harness.sent() == [Kind.PROPOSAL, Kind.APPROVAL]
    assert harness.sent(0.2 * harness.grace_seconds) == []


def test_what_was_not_agreed_on_is_proposed_again_in_the_next_own_turn() -> None:
    harness = ProposerHarness()
    harness.hear(*harness.others[:2])
    for turn in (0, len(harness.world.auditors)):
        assert harness.sent(turn=turn) == [Kind.PROPOSAL, Kind.APPROVAL]


def test_an_epoch_without_points_is_not_proposed() -> None:
    harness = ProposerHarness(points=0)
    harness.hear(*harness.others)
    assert harness.sent() == []
