"""Derivations of difficulty: records from tallies, the mix of levels, lots, what they allow, points."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count
from typing import Any

from vectors.world import ALICE, BOB, LADDERS, STRANGER

from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account
from sapo_protocol.tasks import lot_of
from sapo_protocol.terms.difficulty import (
    Difficulty,
    GroupOutcome,
    Outcomes,
    Record,
    median_outcomes,
    middle_outcomes,
    points_of,
)

TERMS = {
    "three levels": Difficulty(ladders=((1, 3, 2),), step=250, floor=125, groups=32, completions=4),
    "two ladders": Difficulty(ladders=((0, 1), (3, 2)), step=1000, floor=0, groups=1, completions=1),
    "small steps": Difficulty(ladders=((3, 2, 1, 0),), step=7, floor=1000, groups=32, completions=4),
}
MIDDLES: dict[str, Sequence[str]] = {
    "no groups": [],
    "one group": ["w"],
    "two groups of one account": ["rw"],
    "a row of one account, by slot": ["rrrmmmwww"],
    "the account in the middle": ["rrrr", "wwww", "rmwm"],
    "three of ten are always wrong": [*["rrmr"] * 4, *["wwww"] * 3, *["rmmw"] * 3],
    "three of ten are always right": [*["rrwr"] * 4, *["rrrr"] * 3, *["rwmw"] * 3],
    "three of ten make ten times as many": [*["rrmw"] * 7, *["w" * 40] * 3],
    "one group each of most accounts": ["wwww", "r", "m", "w", "rrrr", "r"],
    "equal parts, in the order of accounts": ["rw", "mw", "wr", "wm", "rw", "mw"],
    "parts, not numbers": ["w", "rw", "rrrw", "rrrrrrrw", "wwwwwwwr"],
    "no third to leave out": ["r", "w"],
    "two thirds and one": ["rrr", "mmm", "w"],
}
"""Groups of a family that are right, mixed or wrong, of each account, in the order of slots."""

FAMILIES = 4
LOTS = (0, 1, 2**28, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 2, 2**32 - 1)


def everything() -> dict[str, Any]:
    """Return all derivations by name."""
    return {
        "records": [_records(name, difficulty) for name, difficulty in TERMS.items()],
        "middles": [_middle(name, groups) for name, groups in MIDDLES.items()],
        "lots": _lots(),
    }


def _records(name: str, difficulty: Difficulty) -> dict[str, Any]:
    record, steps = difficulty.start(FAMILIES), []
    for epoch in range(24):
        tallies = [_tally(name, epoch, auditor) for auditor in range(1 + epoch % 5)]
        record = difficulty.follow(record, median_outcomes(tallies))
        steps.append(
            {
                "tallies": [[_texts(row) for row in tally] for tally in tallies],
                "record": [_texts(row) for row in record],
                "mix": list(difficulty.mix(record)),
                "allowed": [[lot, list(difficulty.families_of(record, lot))] for lot in LOTS],
                "points": [_points(groups, record) for groups in ((0, 0, 0, 0), (1, 1, 1, 1), (9, 7, 5, 33))],
            }
        )
    start = [_texts(row) for row in difficulty.start(FAMILIES)]
    return {
        "name": name,
        "difficulty": _terms(difficulty),
        "families": FAMILIES,
        "start": start,
        "epochs": steps,
    }


def _terms(difficulty: Difficulty) -> dict[str, Any]:
    names = ("step", "floor", "groups", "completions")
    ladders = [list(ladder) for ladder in difficulty.ladders]
    return {"ladders": ladders, **{name: getattr(difficulty, name) for name in names}}


def _tally(name: str, epoch: int, auditor: int) -> list[Outcomes]:
    """Return counts from a hash: mostly right in the first epochs, mostly wrong in the last, some absurd."""
    rows = []
    for family in range(FAMILIES):
        noise = sha256(f"{name}/{epoch}/{auditor}/{family}".encode()).digest()
        right, mixed, wrong = (byte % 12 for byte in noise[:3])
        rows.append(Outcomes(right + max(0, 18 - epoch), mixed, wrong + max(0, 2 * epoch - 20)))
    if epoch % 7 == 6:
        rows[epoch % FAMILIES] = Outcomes(2**64 - 1, 2**64 - 1, 0)
    return [Outcomes()] * FAMILIES if epoch % 6 == 5 else rows


def _texts(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]


def _points(groups: tuple[int, ...], record: Record) -> list[Any]:
    return [list(groups), points_of(dict(enumerate(groups)), record)]


def _middle(name: str, groups: Sequence[str]) -> dict[str, Any]:
    accounts = dict(zip(_accounts(), groups, strict=False))
    found: dict[bytes, list[GroupOutcome]] = {
        Account.fromhex(account): [GroupOutcome("rmw".index(letter)) for letter in letters]
        for account, letters in accounts.items()
    }
    return {"name": name, "accounts": list(accounts.items()), "outcomes": list(middle_outcomes(found))}


def _accounts() -> Iterator[str]:
    """Return accounts in no order."""
    for number in count():
        yield sha256(f"account {number}".encode()).hexdigest()[:40]


def _lots() -> list[dict[str, Any]]:
    found = []
    for epoch in (0, 3, 2**32):
        value = beacon(LADDERS.swarm_id, epoch, sha256(b"block %d" % epoch).digest())
        for who in (ALICE, BOB, STRANGER):
            for slot in (0, 1, 31, 2**32 - 1):
                lot = lot_of(LADDERS.swarm_id, value, who.account, slot)
                found.append(
                    {
                        "manifest": "ladders",
                        "beacon": value.hex(),
                        "account": who.account.hex(),
                        "slot": slot,
                        "lot": lot,
                    }
                )
    return found
