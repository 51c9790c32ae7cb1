"""Findings about the auditors' agreement: late tallies, many accounts, a moved identity, old messages."""

from __future__ import annotations

from pathlib import Path

from findings.epochs import (
    ALICE,
    EARNED,
    EPOCH,
    LOOK_SECONDS,
    count,
    exchange,
    messages,
    run_epoch,
    seated,
    turns,
)
from findings.tree import AUDITORS, TREE, Seat, tally
from support.ledger import AUDITOR_BOND, BUDGET_POINTS, Contracts
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_protocol.envelope import Kind
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account


def test_one_late_tally_prevents_no_payment(contracts: Contracts, tmp_path: Path) -> None:
    """One of the three honest auditors has missed a rollout, so a fourth tally moves the lower median."""
    *honest, liar = turns(EPOCH)
    seats = seated(contracts, tmp_path, honest)
    count(contracts, seats, EPOCH, [{ALICE: EARNED}, {ALICE: EARNED - 1}, {ALICE: EARNED + 1}])
    late = tally(AUDITORS[liar], contracts.manifest(), EPOCH, {ALICE: 1})
    assert run_epoch(contracts, seats, EPOCH, late=late) == EPOCH


def test_the_number_of_paid_accounts_is_not_limited(contracts: Contracts, tmp_path: Path) -> None:
    """More accounts are paid in two epochs than one message lists."""
    seats = seated(contracts, tmp_path, range(3))
    posted = []
    for epoch in (EPOCH, EPOCH + 1):
        numbers = range(1 + 600 * (epoch - EPOCH), 601 + 600 * (epoch - EPOCH))
        points = {Account(number.to_bytes(20, "big")): 1 for number in numbers}
        assert sum(points.values()) <= BUDGET_POINTS
        count(contracts, seats, epoch, [points] * 3)
        posted.append(run_epoch(contracts, seats, epoch))
        contracts.finalise()
    assert posted == [EPOCH, EPOCH + 1]


def move(seat: Seat, contracts: Contracts, old: Path, new: Path) -> Seat:
    """Move an auditor to a new data directory as documented; return it there."""
    history = str(new.with_suffix(".json"))
    for words in (["export", history, "--data-dir", str(old)], ["import", history, "--data-dir", str(new)]):
        done = CliRunner().invoke(app, ["keys", "signing", *words])
        assert done.exit_code == 0, done.output
    return TREE.seat(contracts, seat.identity, new)


def test_an_auditor_moved_to_another_machine_keeps_its_bond(contracts: Contracts, tmp_path: Path) -> None:
    """It approves a proposal, moves, and then receives the proposer's other proposal of the turn."""
    proposer, other, auditor, witness = seated(contracts, tmp_path, turns(EPOCH))
    twin = TREE.seat(contracts, proposer.identity, tmp_path / "twin")
    count(contracts, [proposer, other, auditor, witness], EPOCH, [{ALICE: EARNED}] * 4)
    exchange([proposer, other, auditor])
    twin.hear([*proposer.said(), *witness.said()])  # so it proposes the settlement of four tallies, not three
    while len(messages([proposer, twin], contracts, Kind.PROPOSAL)) < 2:
        contracts.chain.now_seconds += LOOK_SECONDS
        proposer.look(EPOCH)
        twin.look(EPOCH)
    auditor.hear(proposer.said())
    auditor.look(EPOCH)
    assert len(messages([proposer, auditor], contracts, Kind.APPROVAL)) == 2

    moved = move(auditor, contracts, tmp_path / str(turns(EPOCH)[2]), tmp_path / "moved")
    moved.hear(twin.said())
    moved.look(EPOCH)
    for seat in (proposer, twin, auditor, moved):
        witness.hear(seat.said())
    witness.accuse(EPOCH)
    bonds = [contracts.vault.bonded(seat.identity.account) for seat in (proposer, other, auditor, witness)]
    assert bonds == [0, AUDITOR_BOND, AUDITOR_BOND, AUDITOR_BOND]


def test_messages_of_long_settled_epochs_are_not_kept(contracts: Contracts, tmp_path: Path) -> None:
    """One auditor could fill all disks with messages of past epochs."""
    (seat,) = seated(contracts, tmp_path, [0])
    contracts.chain.now_seconds = epoch_start_seconds(contracts.manifest(), EPOCH)
    seat.hear(tally(AUDITORS[1], contracts.manifest(), epoch, {ALICE: 1}) for epoch in range(EPOCH))
    assert 0 < len(seat.said()) <= 16


def test_an_account_that_improves_is_not_paid_less() -> None:
    """Over sixteen epochs a node gets from one right answer in two to nineteen in twenty."""
    points = TREE.pay([0.5 + 0.03 * epoch for epoch in range(16)])
    assert min(points) >= points[0] / 2, points
    assert sum(points[8:]) / 8 >= 2 * points[0] / 3, points
