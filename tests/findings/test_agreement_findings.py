"""Findings about the auditors' agreement: late tallies, many accounts, a moved identity, old messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from findings.tree import AUDITORS, TREE, Points, Seat, tally
from support.ledger import AUDITOR_BOND, BUDGET_POINTS, EPOCH_SECONDS, Contracts
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account

EPOCH: Final = 100
"""The epoch that is settled; it begins with the test."""

LOOK_SECONDS: Final = 2.0
ALICE: Final = Account(bytes(19) + b"\x01")
EARNED: Final = 3


def turns(epoch: int) -> Sequence[int]:
    """Return the auditors' places in the order in which they may propose."""
    return [(epoch + turn) % len(AUDITORS) for turn in range(len(AUDITORS))]


def messages(seats: Iterable[Seat], contracts: Contracts, kind: Kind) -> set[bytes]:
    """Return all messages of a kind that anybody holds."""
    swarm_id = contracts.manifest().swarm_id
    held = {message for seat in seats for message in seat.said()}
    return {message for message in held if parse_envelope(message, swarm_id).kind is kind}


def exchange(seats: Sequence[Seat]) -> None:
    """Let everybody hear what everybody holds: first tallies, then what builds on them."""
    for listener in seats:
        for speaker in seats:
            if speaker is not listener:
                known = set(listener.said())
                listener.hear(message for message in speaker.said() if message not in known)


def run_epoch(
    contracts: Contracts, seats: Sequence[Seat], epoch: int, *, late: bytes | None = None
) -> int | None:
    """Let the auditors settle an epoch for a minute and a half; return the epoch that is posted then.

    Args:
        late: a message that everybody gets once a proposal is there, and not before.
    """
    end_seconds = epoch_start_seconds(contracts.manifest(), epoch + 1)
    for look in range(round(1.5 * EPOCH_SECONDS / LOOK_SECONDS)):
        contracts.chain.now_seconds = end_seconds + 1 + look * LOOK_SECONDS
        if look == 0:
            exchange(seats)
        for seat in seats:
            seat.look(epoch)
            if late is not None and messages([seat], contracts, Kind.PROPOSAL):
                for listener in seats:
                    listener.hear([late])
                late = None
            exchange(seats)
        if (live := contracts.ledger.live()) is not None:
            return live.root.epoch
    return None


def seated(contracts: Contracts, root: Path, places: Iterable[int]) -> list[Seat]:
    """Return the auditors at these places."""
    return [TREE.seat(contracts, AUDITORS[place], root / str(place)) for place in places]


def count(contracts: Contracts, seats: Sequence[Seat], epoch: int, counts: Sequence[Points]) -> None:
    """Have each auditor count an epoch, at its end."""
    contracts.chain.now_seconds = epoch_start_seconds(contracts.manifest(), epoch + 1)
    for seat, points in zip(seats, counts, strict=True):
        seat.hear([tally(seat.identity, contracts.manifest(), epoch, points)])


def test_one_late_tally_stops_nobodys_pay(contracts: Contracts, tmp_path: Path) -> None:
    """One of the three honest auditors has missed a rollout, so a fourth tally moves the lower median."""
    *honest, liar = turns(EPOCH)
    seats = seated(contracts, tmp_path, honest)
    count(contracts, seats, EPOCH, [{ALICE: EARNED}, {ALICE: EARNED - 1}, {ALICE: EARNED + 1}])
    late = tally(AUDITORS[liar], contracts.manifest(), EPOCH, {ALICE: 1})
    assert run_epoch(contracts, seats, EPOCH, late=late) == EPOCH


def test_there_is_no_last_account(contracts: Contracts, tmp_path: Path) -> None:
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
    """Move an auditor to a new data directory as the documentation says; return it there."""
    history = str(new.with_suffix(".json"))
    for words in (["export", history, "--data-dir", str(old)], ["import", history, "--data-dir", str(new)]):
        done = CliRunner().invoke(app, ["keys", "signing", *words])
        assert done.exit_code == 0, done.output
    return TREE.seat(contracts, seat.identity, new)


def test_a_moved_auditor_keeps_its_bond(contracts: Contracts, tmp_path: Path) -> None:
    """It approves a proposal, moves, and then hears the other proposal that the proposer made in its turn."""
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
    """One auditor has the whole past to fill everybody's disk with."""
    (seat,) = seated(contracts, tmp_path, [0])
    contracts.chain.now_seconds = epoch_start_seconds(contracts.manifest(), EPOCH)
    seat.hear(tally(AUDITORS[1], contracts.manifest(), epoch, {ALICE: 1}) for epoch in range(EPOCH))
    assert 0 < len(seat.said()) <= 16
