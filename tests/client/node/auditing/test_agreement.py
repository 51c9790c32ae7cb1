"""f of 3f + 1 dishonest auditors stop no epoch, cost no honest bond and change no points; f + 1 may."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.agreement_world import AgreementOutcome, AgreementWorld, FaultRates


def harmless(epochs: int) -> AgreementOutcome:
    return AgreementOutcome(epochs, stopped=0, outside=0, honest_bonds_lost=0, unexplained=0)


@pytest.mark.parametrize("seed", range(8))
def test_one_dishonest_auditor_of_four_prevents_no_settlement(seed: int) -> None:
    world = AgreementWorld(seed, auditors=4, liars=1)
    assert world.run(10) == harmless(10)


@pytest.mark.parametrize("auditors", [7, 10])
def test_a_third_of_dishonest_auditors_prevents_no_settlement(auditors: int) -> None:
    world = AgreementWorld(auditors, auditors=auditors, liars=(auditors - 1) // 3)
    assert world.run(6) == harmless(6)


@pytest.mark.parametrize("auditors", [4, 7, 10])
def test_colluding_auditors_up_to_a_third_change_no_points(auditors: int) -> None:
    world = AgreementWorld(auditors, auditors=auditors, liars=(auditors - 1) // 3, collude=True)
    assert world.run(6) == harmless(6)


def test_a_swarm_whose_messages_take_longer_than_its_turns_settles_later() -> None:
    """Turns grow, and an auditor also signs what was proposed in an earlier turn."""
    world = AgreementWorld(3, auditors=4, liars=1, fault_rates=FaultRates(slow=1.0, crash=0.0, outage=0.0))
    assert world.run(10) == harmless(10)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("liars", [0, 1])
def test_an_epoch_whose_tallies_are_an_epoch_late_is_waited_for(seed: int, liars: int) -> None:
    """The next epoch can be settled a whole epoch longer; this one cannot."""
    rates = FaultRates(slow=0.0, crash=0.0, outage=0.0)
    world = AgreementWorld(seed, auditors=4, liars=liars, silent=True, fault_rates=rates, held_up={2: 3.0})
    assert world.run(6) == harmless(6)


@pytest.mark.parametrize("epochs", [{2: 40.0}, {2: 40.0, 3: 40.0}])
@pytest.mark.parametrize("liars", [0, 1])
def test_epochs_whose_tallies_never_arrive_do_not_affect_later_ones(
    epochs: dict[int, float], liars: int
) -> None:
    """Also if a dishonest auditor sends a tally of these epochs, so that the others wait for more."""
    rates = FaultRates(slow=0.0, crash=0.0, outage=0.0)
    world = AgreementWorld(1, auditors=4, liars=liars, fault_rates=rates, held_up=epochs)
    assert world.run(8) == replace(harmless(8), stopped=len(epochs))


@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_that_was_recalled_is_not_proposed_again(seed: int) -> None:
    """The contract takes no posting of it any more, however long it could have been settled."""
    rates = FaultRates(slow=0.0, crash=0.0, outage=0.0)
    world = AgreementWorld(seed, auditors=4, liars=1, silent=True, fault_rates=rates, recalled=2)
    outcome = world.run(6)
    assert [root.epoch for root in world.ledger.final] == [0, 1, 3, 4, 5]
    assert outcome.stopped == 1
    assert world.proposals_at_recall
    assert world.proposals_of(2) == world.proposals_at_recall
    assert world.happened["posted after its recall"] == 0


@pytest.mark.parametrize("liars", [0, 1])
def test_a_true_posting_that_was_rejected_is_proposed_again_in_a_later_turn(liars: int) -> None:
    rates = FaultRates(slow=0.0, crash=0.0, outage=0.0)
    world = AgreementWorld(1, auditors=4, liars=liars, silent=True, fault_rates=rates, hidden=(1, 3))
    assert world.run(6) == harmless(6)


@pytest.mark.parametrize("auditors", [4, 7, 10])
def test_more_than_a_third_of_silent_auditors_prevents_settlement(auditors: int) -> None:
    world = AgreementWorld(1, auditors=auditors, liars=(auditors - 1) // 3 + 1, silent=True)
    assert world.run(4) == AgreementOutcome(4, stopped=4, outside=0, honest_bonds_lost=0, unexplained=0)


@pytest.mark.parametrize("auditors", [4, 7, 10])
def test_more_than_a_third_of_colluding_auditors_changes_points_and_costs_no_honest_bond(
    auditors: int,
) -> None:
    world = AgreementWorld(1, auditors=auditors, liars=(auditors - 1) // 3 + 1, collude=True)
    outcome = world.run(4)
    assert outcome.outside > 0
    assert outcome.honest_bonds_lost == 0


@pytest.mark.long
@pytest.mark.parametrize("auditors", [4, 7, 10])
def test_a_thousand_adversarial_epochs(auditors: int) -> None:
    world = AgreementWorld(auditors, auditors=auditors, liars=(auditors - 1) // 3)
    assert world.run(1000) == harmless(1000)
