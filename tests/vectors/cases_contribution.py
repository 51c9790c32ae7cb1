"""Tallies, proposals and approvals: fields, bounds, time, auditors, signatures, known messages."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from vectors.cases_equivocation import proof
from vectors.raw import Raw, cbor
from vectors.world import (
    ALICE,
    ALICES_SECOND_KEY,
    BOB,
    CHAINED,
    EPOCH,
    EPOCH_SECONDS,
    FORBIDDEN_TYPES,
    GENESIS,
    MALLORY,
    NOW_MS,
    PLAIN,
    STRANGER,
    WRONG_TYPES,
    Case,
    Identity,
    Message,
    frame,
    one,
)

from sapo_protocol.envelope import Kind
from sapo_protocol.manifest import Manifest

OVER = EPOCH - 1
A, B = b"\x0a" * 20, b"\x0b" * 20
IDS = sorted(sha256(b"%d" % number).digest() for number in range(65))
MANY = [[number.to_bytes(20, "big"), number] for number in range(1, 1026)]
MANY_PAGES = [sha256(b"%d" % number).digest() for number in range(257)]
PAGES: list[tuple[str, str | None, list[Any]]] = [
    ("one page", None, IDS[:1]),
    ("256 pages, one of them twice", None, [*MANY_PAGES[:255], MANY_PAGES[0]]),
    ("257 pages", "pages", MANY_PAGES),
    ("257 pages, the last of them malformed", "pages", [*MANY_PAGES[:256], 1]),
    ("a page's short digest", "types", [IDS[0][:31]]),
    ("pages and an entry", "types", [IDS[0], [A, 1]]),
    ("pages and a number", "types", [IDS[0], 1]),
    ("an empty digest", "types", [b""]),
]
GENUINE: Mapping[Kind, dict[int, Any]] = {
    Kind.TALLY: {3: [[A, 1], [B, 2]], 4: bytes(32)},
    Kind.PROPOSAL: {3: IDS[:2], 4: [[A, 1, 2], [B, 0, 2]]},
    Kind.APPROVAL: {3: bytes(32), 4: bytes(65)},
}


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    for kind in GENUINE:
        yield _case(kind, "genuine", None)
        yield _judged(f"{_word(kind)}: genuine, on a chain", None, sealed(kind, manifest=CHAINED), "chained")
        yield from _fields(kind)
        yield from _judgement(kind)
        yield from _sequences(kind)
    yield from _tallies()
    yield from _proposals()
    yield from _approvals()
    yield from _turns()
    yield from _places()


def payload(kind: Kind, who: Identity = ALICE, **changes: Any) -> bytes:
    """Return the payload of a contribution; ``f3=...`` replaces field 3."""
    fields = {0: bytes(who.node), 1: bytes(who.account), 2: OVER, **GENUINE[kind]}
    return cbor(fields | {int(name[1:]): value for name, value in changes.items()})


def sealed(kind: Kind, who: Identity = ALICE, manifest: Manifest = PLAIN, **changes: Any) -> bytes:
    """Return a contribution with some fields replaced, under a genuine signature."""
    return who.signed(payload(kind, who, **changes), manifest, kind)


def _word(kind: Kind) -> str:
    return kind.name.lower()


def _judged(name: str, rule: str | None, data: bytes, manifest: str = "plain", **options: Any) -> Case:
    auditors = (ALICE.account.hex(),)
    return one(
        name, rule, data, topic="contributions", **{"auditors": auditors, "manifest": manifest} | options
    )


def _case(kind: Kind, name: str, rule: str | None, **changes: Any) -> Case:
    return _judged(f"{_word(kind)}: {name}", rule, sealed(kind, **changes))


def _fields(kind: Kind) -> Iterator[Case]:
    genuine = {0: bytes(ALICE.node), 1: bytes(ALICE.account), 2: OVER, **GENUINE[kind]}

    def case(name: str, rule: str | None, fields: Any) -> Case:
        return _judged(f"{_word(kind)}: {name}", rule, ALICE.signed(cbor(fields), PLAIN, kind))

    keys, types = f"R1.{int(kind)}.1", f"R1.{int(kind)}.2"
    for key, value in genuine.items():
        yield case(f"without field {key}", keys, {k: v for k, v in genuine.items() if k != key})
        for name, wrong in WRONG_TYPES.items():
            if not isinstance(wrong, type(value)):
                yield case(f"field {key} is a {name}", types, {**genuine, key: wrong})
    for name, wrong in FORBIDDEN_TYPES.items():
        yield case(f"the epoch is a {name}", "R1.0.6", {**genuine, 2: wrong})
    turn = {Kind.TALLY: keys, Kind.PROPOSAL: "R1.4.8", Kind.APPROVAL: "R1.5.4"}[kind]
    for key, rule in ((5, turn), (24, keys), (2**64 - 1, keys)):
        yield case(f"with field {key} more", rule, {**genuine, key: 0})
    for key, size in ((0, 31), (0, 33), (1, 19), (1, 21)):
        yield case(f"field {key} of {size} bytes", types, {**genuine, key: bytes(size)})
    yield case("an array", keys, list(genuine.values()))
    yield case("a number written too long", "R1.0.4", {**genuine, 2: Raw(b"\x18\x02")})


def _tallies() -> Iterator[Case]:
    for name, rule, points in (
        ("nobody", None, []),
        ("descending", "R1.3.5", [[B, 1], [A, 1]]),
        ("an account twice", "R1.3.5", [[A, 1], [A, 1]]),
        ("three in an entry", "R1.3.4", [[A, 1, 1]]),
        ("one in an entry", "R1.3.4", [[A]]),
        ("nothing in an entry", "R1.3.4", [[]]),
        ("an entry that is a number", "R1.3.2", [1]),
        ("an account of 19 bytes", "R1.3.2", [[A[:19], 1]]),
        ("points in text", "R1.3.2", [[A, "1"]]),
        ("the most points", None, [[A, 2**64 - 1]]),
        ("1,024 accounts", None, MANY[:1024]),
        ("1,025 accounts", "R1.3.3", MANY),
        ("descending, then malformed", "R1.3.2", [[B, 1], [A, "1"]]),
        ("three in an entry, the first of them malformed", "R1.3.4", [["1", 1, 1]]),
        ("a short account before text for points", "R1.3.2", [[A[:19], "1"]]),
    ):
        yield _case(Kind.TALLY, name, rule, f3=points)
    for name, rule, pages in PAGES:
        rule = rule and rule.replace("pages", "R1.3.8").replace("types", "R1.3.2")
        yield _case(Kind.TALLY, f"{name} in place of entries", rule, f3=pages)
    yield _case(Kind.TALLY, "a number before digests", "R1.3.2", f3=[1, IDS[0]])
    yield _case(Kind.TALLY, "too many pages, and a short evidence root", "R1.3.8", f3=MANY_PAGES, f4=b"")
    yield _case(Kind.TALLY, "a short evidence root", "R1.3.2", f4=bytes(31))
    yield _case(Kind.TALLY, "descending, and a short evidence root", "R1.3.5", f3=[[B, 1], [A, 1]], f4=b"")
    yield from _values(Kind.TALLY, 8192)


def _proposals() -> Iterator[Case]:
    for name, rule, tallies in (
        ("64 tallies", None, IDS[:64]),
        ("65 tallies", "R1.4.3", IDS),
        ("no tally", "R1.4.3", []),
        ("a tally twice", "R1.4.4", [IDS[0], IDS[0]]),
        ("descending tallies", "R1.4.4", [IDS[1], IDS[0]]),
        ("a short tally", "R1.4.2", [IDS[0][:31]]),
    ):
        yield _case(Kind.PROPOSAL, name, rule, f3=tallies)
    many = [[account, count, count] for account, count in MANY]
    for name, rule, shares in (
        ("no shares", None, []),
        ("descending shares", "R1.4.7", [[B, 1, 1], [A, 1, 1]]),
        ("an account twice", "R1.4.7", [[A, 1, 1], [A, 1, 1]]),
        ("two in a share", "R1.4.6", [[A, 1]]),
        ("four in a share", "R1.4.6", [[A, 1, 1, 1]]),
        ("a share that is text", "R1.4.2", ["1"]),
        ("a short account", "R1.4.2", [[A[:19], 1, 1]]),
        ("points in bytes", "R1.4.2", [[A, b"1", 1]]),
        ("cumulative bytes", "R1.4.2", [[A, 1, b"1"]]),
        ("1,024 shares", None, many[:1024]),
        ("1,025 shares", "R1.4.5", many),
    ):
        yield _case(Kind.PROPOSAL, name, rule, f4=shares)
    for name, rule, pages in PAGES:
        rule = rule and rule.replace("pages", "R1.4.11").replace("types", "R1.4.2")
        yield _case(Kind.PROPOSAL, f"{name} in place of shares", rule, f4=pages)
    yield _case(Kind.PROPOSAL, "a share before digests", "R1.4.2", f4=[[A, 1, 1], IDS[0]])
    both = {"f3": [IDS[1], IDS[0]], "f4": ["1"]}
    yield _case(Kind.PROPOSAL, "descending tallies before malformed shares", "R1.4.4", **both)
    yield from _values(Kind.PROPOSAL, 8192)


def _approvals() -> Iterator[Case]:
    for size in (0, 64, 66):
        yield _case(Kind.APPROVAL, f"a signature of {size} bytes", "R1.5.3", f4=bytes(size))
    yield _case(Kind.APPROVAL, "a short proposal id", "R1.5.2", f3=bytes(31))
    yield from _values(Kind.APPROVAL, 64)


def _turns() -> Iterator[Case]:
    """Yield the field that is left out in turn 0, and what depends on it."""
    for kind in (Kind.PROPOSAL, Kind.APPROVAL):
        bound, types = {Kind.PROPOSAL: ("R1.4.8", "R1.4.2"), Kind.APPROVAL: ("R1.5.4", "R1.5.2")}[kind]
        for turn, rule in ((1, None), (16, None), (17, "R6.5"), (2**32 - 1, "R6.5"), (2**32, bound)):
            yield _case(kind, f"of turn {turn:,}", rule, f5=turn)
        yield _case(kind, "of a turn in bytes", types, f5=b"")
        yield _case(kind, "of turn 0, written out, and of a malformed author", types, f5=0, f1=b"")
        unsigned = frame(kind=int(kind), payload=payload(kind, f5=17))
        yield _judged(f"{_word(kind)}: of a turn that no epoch has, not signed", "R6.5", unsigned)
    both = tuple(sorted((ALICE.account.hex(), BOB.account.hex())))
    alices = (both.index(ALICE.account.hex()) - OVER) % 2
    for turn, rule in ((alices, None), (1 - alices, "R6.6"), (alices + 14, None), (15 - alices, "R6.6")):
        fields: dict[str, Any] = {"f5": turn} if turn else {}
        data = sealed(Kind.PROPOSAL, **fields)
        yield _judged(f"proposal: one of two auditors, turn {turn}", rule, data, auditors=both)
        approval = sealed(Kind.APPROVAL, **fields)
        yield _judged(f"approval: one of two auditors, turn {turn}", None, approval, auditors=both)
    foreign = frame(kind=int(Kind.PROPOSAL), payload=payload(Kind.PROPOSAL, f5=15 - alices))
    yield _judged("proposal: in another's turn, not signed", "R6.6", foreign, auditors=both)


def _values(kind: Kind, most: int) -> Iterator[Case]:
    for values, rule in ((most, f"R1.{int(kind)}.1"), (most + 1, "R1.0.1")):
        data = ALICE.signed(cbor([0] * (values - 1)), PLAIN, kind)
        yield _judged(f"{_word(kind)}: {values:,} values", rule, data)


def _judgement(kind: Kind) -> Iterator[Case]:
    def case(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
        return _judged(f"{_word(kind)}: {name}", rule, data, **options)

    for epoch, rule in ((0, None), (2, None), (3, "R3.3"), (4, "R3.3"), (2**64 - 1, "R3.3")):
        yield case(f"of epoch {epoch}", rule, sealed(kind, f2=epoch))
    age = 1000 * 16 * EPOCH_SECONDS
    end = 1000 * (GENESIS + (EPOCH + 1) * EPOCH_SECONDS) - NOW_MS
    for offset, rule in (
        (end - 500, "R3.3"),
        (end - 1, "R3.3"),
        (end, None),
        (end + age - 1, None),
        (end + age, "R3.5"),
    ):
        yield case(f"heard {offset} ms from now", rule, sealed(kind, f2=EPOCH), offset_ms=offset)
    yield case(
        "forgotten, a stranger's and not signed",
        "R3.5",
        frame(kind=int(kind), payload=payload(kind, STRANGER)),
        offset_ms=86_400_000,
    )
    last = EPOCH + 86_400 // EPOCH_SECONDS - 1
    yield case("when no certificate counts", "R5.2", sealed(kind, f2=last), offset_ms=86_400_000)
    yield case("nobody's", "R5.1", sealed(kind, STRANGER))
    yield case("in a stranger's account", "R5.1", sealed(kind, f1=bytes(BOB.account)))
    yield case("of a stranger's node", "R5.1", sealed(kind, f0=bytes(BOB.node)))
    yield case("of an account that is no auditor", "R5.3", sealed(kind, BOB))
    yield case("where nobody is an auditor", "R5.3", sealed(kind), auditors=())
    second, keys = sealed(kind, ALICES_SECOND_KEY), ("alice", "alice 1")
    yield case("of an auditor's second key", None, second, certificates=keys)
    forged = frame(kind=int(kind), payload=payload(kind))
    yield case("not signed", "R7.1", forged)
    yield case("signed by another node", "R7.1", MALLORY.signed(payload(kind), PLAIN, kind))
    yield case("signed for another swarm", "R7.1", _moved(sealed(kind, manifest=CHAINED)))
    other = ALICE.signed(payload(kind), PLAIN, Kind.ROLLOUT)
    yield case("signed as another kind", "R7.1", other[:4] + bytes((int(kind),)) + other[5:])
    yield case("of another swarm", "R2.3", sealed(kind, manifest=CHAINED))
    early = frame(kind=int(kind), payload=payload(kind, STRANGER, f2=EPOCH))
    yield case("early, a stranger's and not signed", "R3.3", early)
    unsigned = frame(kind=int(kind), payload=payload(kind, BOB))
    yield case("no auditor's and not signed", "R5.3", unsigned)


def _moved(message: bytes) -> bytes:
    """Return a message of another swarm, relabelled as one of this."""
    return message[:8] + bytes(PLAIN.swarm_id) + message[40:]


def _sequences(kind: Kind) -> Iterator[Case]:
    def case(name: str, *messages: tuple[str | None, bytes]) -> Case:
        steps = tuple(Message(rule, data, "contributions", i) for i, (rule, data) in enumerate(messages))
        return Case(f"{_word(kind)}: {name}", steps, auditors=(ALICE.account.hex(),))

    genuine = sealed(kind)
    forged = frame(kind=int(kind), payload=payload(kind))
    yield case("the same again", (None, genuine), ("R4.3", genuine))
    yield case("a forged copy shadows nothing", ("R7.1", forged), (None, genuine), ("R4.3", forged))
    yield case("a second content", (None, genuine), (None, sealed(kind, f2=OVER - 1)))
    others = [sealed(kind, **_another(kind, number)) for number in (1, 2)]
    forged = frame(kind=int(kind), payload=payload(kind, **_another(kind, 3)))
    again = (("R4.5", others[1]), ("R4.3", genuine), (None, sealed(kind, f2=OVER - 1)))
    yield case("a third content of one place", (None, genuine), ("R7.1", forged), (None, others[0]), *again)
    if kind is not Kind.TALLY:
        later = [(None, sealed(kind, f5=1, **_another(kind, number))) for number in (1, 2)]
        yield case("two contents of each of two turns", (None, genuine), (None, others[0]), *later)


def _another(kind: Kind, number: int) -> Mapping[str, Any]:
    """Return a change that makes another content of the same place."""
    return {"f3": IDS[number : number + 1]} if kind is Kind.PROPOSAL else _changed(kind, number)


def _changed(kind: Kind, number: int) -> Mapping[str, Any]:
    return {"f4": bytes([number]) * 32} if kind is Kind.TALLY else {"f3": bytes([number]) * 32}


def _places() -> Iterator[Case]:
    """Yield every kind on the topics that do not carry it."""
    messages = {_word(kind): sealed(kind) for kind in GENUINE}
    for kind, data in messages.items():
        for topic in ("rollouts", "certificates", "equivocations"):
            yield one(f"a {kind} among {topic}", "R2.4", data, topic=topic)
    strays = {"certificate": ALICE.certificate(), "rollout": ALICE.rollout(), "equivocation": proof()}
    for kind, data in strays.items():
        yield _judged(f"a {kind} among contributions", "R2.4", data)
    yield _judged("noise among contributions", "R1.0.3", b"\xff")
    for number in (0, 24, 25, 2**64 - 1):
        yield _judged(f"kind {number} among contributions", "R2.2", frame(kind=number))
