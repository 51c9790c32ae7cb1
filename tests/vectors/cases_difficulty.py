"""Fields of tallies and proposals that exist only if the manifest has ladders."""

from collections.abc import Iterator
from typing import Any

from vectors.cases_contribution import IDS, payload
from vectors.raw import cbor
from vectors.world import ALICE, LADDERS, PLAIN, Case, frame, one

from sapo_protocol.envelope import Kind

OUTCOMES = [[1, 2, 3]] * 5
RECORD = [[9, 0, 0, 750], [1, 2, 3, 1000], [0, 0, 0, 0], [0, 0, 0, 250], [0, 0, 0, 0]]
KINDS = {Kind.TALLY: (5, OUTCOMES), Kind.PROPOSAL: (6, RECORD)}


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    for kind in KINDS:
        yield from _rows(kind)
    yield from _weights()
    for number, rule in ((5, "R1.5.2"), (24, "R1.5.1")):
        yield _case(Kind.APPROVAL, f"with rows in field {number}", rule, **{f"f{number}": OUTCOMES})


def _case(kind: Kind, name: str, rule: str | None, **changes: Any) -> Case:
    data = ALICE.signed(_payload(kind, changes), LADDERS, kind)
    return _judged(f"{kind.name.lower()}: {name}", rule, data, "ladders")


def _judged(name: str, rule: str | None, data: bytes, manifest: str) -> Case:
    auditors = (ALICE.account.hex(),)
    return one(name, rule, data, topic="contributions", manifest=manifest, auditors=auditors)


def _payload(kind: Kind, changes: dict[str, Any]) -> bytes:
    """Return a contribution's payload after changes, its fields in the order of their keys."""
    return payload(kind, **dict(sorted(changes.items(), key=lambda item: int(item[0][1:]))))


def _rows(kind: Kind) -> Iterator[Case]:
    key, genuine = KINDS[kind]
    keys, types = f"R1.{int(kind)}.1", f"R1.{int(kind)}.2"
    count, width = ("R1.3.6", "R1.3.7") if kind is Kind.TALLY else ("R1.4.9", "R1.4.10")
    field = f"f{key}"
    yield _case(kind, "genuine", None, **{field: genuine})
    yield _case(kind, "without rows", keys)
    plain = ALICE.signed(_payload(kind, {field: genuine}), PLAIN, kind)
    yield _judged(f"{kind.name.lower()}: rows where there are no ladders", keys, plain, "plain")
    yield _case(kind, "with a field more", keys, **{field: genuine, "f24": 0})
    short, long = genuine[0][:-1], [*genuine[0], 0]
    for name, rule, rows in (
        ("rows that are a number", types, 0),
        ("no row", count, []),
        ("a row too few", count, genuine[:-1]),
        ("a row too many", count, [*genuine, genuine[0]]),
        ("a row that is a number", types, [0, *genuine[1:]]),
        ("a number too few in a row", width, [short, *genuine[1:]]),
        ("a number too many in a row", width, [*genuine[:-1], long]),
        ("a number that is text", types, [[*short, "1"], *genuine[1:]]),
        ("a short row before one with text", width, [short, [*short, "1"], *genuine[2:]]),
    ):
        yield _case(kind, name, rule, **{field: rows})
    pages = [bytes(32)] if kind is Kind.TALLY else [bytes(32), bytes(32)]
    yield _case(
        kind, "genuine, on pages", None, **{"f3" if kind is Kind.TALLY else "f4": pages, field: genuine}
    )
    descending: dict[str, Any] = (
        {"f3": [[b"\x0b" * 20, 1], [b"\x0a" * 20, 1]]} if kind is Kind.TALLY else {"f3": IDS[1::-1]}
    )
    order = "R1.3.5" if kind is Kind.TALLY else "R1.4.4"
    yield _case(kind, "descending, and a row too few", order, **descending, **{field: genuine[:-1]})
    yield _case(kind, "descending, and without rows", keys, **descending)


def _weights() -> Iterator[Case]:
    def record(*weights: int) -> list[list[int]]:
        return [[0, 0, 0, weight] for weight in weights]

    def case(name: str, rule: str | None, *weights: int, **changes: Any) -> Case:
        return _case(Kind.PROPOSAL, name, rule, f6=record(*weights), **changes)

    yield case("weights of levels apart", None, 500, 0, 1000, 0, 500)
    yield case("weights above a thousand", "R6.10", 1000, 1000, 0, 250, 0)
    yield case("weights below a thousand", "R6.10", 1000, 500, 499, 0, 0)
    yield case("no weights", "R6.10", 0, 0, 0, 0, 0)
    content = _payload(Kind.PROPOSAL, {"f6": record(0, 0, 0, 0, 0)})
    unsigned = frame(LADDERS, kind=int(Kind.PROPOSAL), payload=content)
    yield _judged("proposal: no weights, not signed", "R6.10", unsigned, "ladders")
    yield case("no weights, in a turn that no epoch has", "R6.5", 0, 0, 0, 0, 0, f5=17)
    yield case("of turn 1", None, 1000, 1000, 0, 0, 0, f5=1)
    yield case("of turn 0, written out", "R1.4.8", 1000, 1000, 0, 0, 0, f5=0)
    written = cbor(record(1000, 1000, 0, 0, 0))
    yield _case(Kind.PROPOSAL, "a record in bytes", "R1.4.2", f6=written)
