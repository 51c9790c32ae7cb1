"""Auditors that settle an epoch, and the messages that each receives, in steps of two seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from findings.tree import AUDITORS, TREE, Points, Seat, tally
from support.ledger import EPOCH_SECONDS, Contracts

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
    """Deliver all stored messages to all auditors: first tallies, then the messages that depend on them."""
    for listener in seats:
        for speaker in seats:
            if speaker is not listener:
                known = set(listener.said())
                listener.hear(message for message in speaker.said() if message not in known)


def run_epoch(
    contracts: Contracts, seats: Sequence[Seat], epoch: int, *, late: bytes | None = None
) -> int | None:
    """Let the auditors settle for a minute and a half; return the epoch that is posted then.

    Args:
        epoch: the last one that has ended.
        late: a message that everybody gets once a proposal is there, and not before.
    """
    begin_seconds = max(contracts.chain.now_seconds, epoch_start_seconds(contracts.manifest(), epoch + 1) + 1)
    for look in range(round(1.5 * EPOCH_SECONDS / LOOK_SECONDS)):
        contracts.chain.now_seconds = begin_seconds + look * LOOK_SECONDS
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
