"""One auditor that first splits the others over two proposals, and then strikes its own signature."""

from typing import Any

import pytest

from sapo_client.lab.quorum.simulation import QuorumPlan, QuorumSimulation, play
from sapo_client.lab.quorum.strategies import StrikeLate, proposal_of
from sapo_protocol.contributions import Approval, Proposal
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.identifiers import ContentId

pytestmark = pytest.mark.long


class SplitAndStrike(StrikeLate):
    """Send one proposal to two of the others and another one to the third, and approve the first.

    Post it with a quorum of signatures, its own among them, and convict itself at the end of the window. The
    third auditor has approved another root in this turn, so no quorum can complete the posting.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: list[SignedEnvelope] = []
        self._split_seconds = 0.0

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        liar = simulation.proposing(epoch, turn)
        if liar is None or simulation.chain.state().live is not None:
            return
        first, second = (proposal_of(simulation, liar, epoch, turn, skip=skip) for skip in (0, 1))
        content_id = self._whisper(simulation, first, slice(2))
        self._whisper(simulation, second, slice(2, None))
        self._whisper(simulation, simulation.approval_of(liar, content_id, first), slice(2))
        self._split_seconds = simulation.chain.now_seconds

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        if simulation.chain.now_seconds > self._split_seconds:  # gossip takes a step
            simulation._forwarded.extend(self._later)
            self._later.clear()
        own, live = simulation.liars[0].account, simulation.chain.live()
        if simulation.chain.state().live is None:
            if not simulation.chain.has_bond(own):
                simulation.chain.bond_auditor(own)
            self._post_first(simulation, epoch)
        elif (
            live is not None
            and self._posted is not None
            and live.root == self._posted.statement.root
            and simulation.is_last_challenge_step(live)
        ):
            self._strike(simulation, live.root)
            self._posted = None

    def _whisper(self, simulation: QuorumSimulation, message: Proposal | Approval, whom: slice) -> ContentId:
        kind: Any = Kind.PROPOSAL if isinstance(message, Proposal) else Kind.APPROVAL
        liar = simulation.liars[0]
        envelope = seal(kind, simulation.manifest.swarm_id, message.to_payload(), liar.seed)
        for auditor in simulation.honest[whom]:
            auditor.receive(envelope.to_bytes(), ())
        self._later.append(envelope)
        return envelope.content_id


def test_what_one_auditor_delays_by_splitting_the_others_before_it_strikes() -> None:
    """The measure of a known defect (docs/known-defects.md): two of six epochs are never final.

    Nobody is paid falsely and no honest auditor loses a bond. When this test fails because all six epochs are
    final, remove the row.
    """
    outcome = play(QuorumPlan(liars=1, epochs=6), SplitAndStrike())
    assert (outcome.final, outcome.counted, outcome.paid) == (4, 288, 192)
    assert (outcome.player_paid, outcome.bonds_lost) == (0, 0)
