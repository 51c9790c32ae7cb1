"""Islands: homes by epoch, certificates and proofs on an account's home, and the order of these checks.

In the swarm ``four islands`` a home lasts two epochs. Alice lives on island 0 in the epochs 1 and 2 and on
3 in the epochs 3 to 6; Bob on 0 in 1 and 2 and on 3 in 3 and 4; Mallory on 2 in 0 and 1, then on 1.
In the swarm ``two to an island``, where up to four islands follow who was paid, Alice's draws are 3 in the
epochs 2 and 3 and 0 in 4, all modulo 4; Mallory's is 2 from 2 to 5.
"""

from collections.abc import Iterator
from typing import Any

from vectors.cases_equivocation import proof
from vectors.raw import cbor
from vectors.world import ALICE, BOB, GENESIS, MALLORY, MANIFESTS, STRANGER, Case, Message, Paid, frame, one

FOUR = MANIFESTS["four islands"]


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield from _rollouts()
    yield from _order()
    yield from _moves()
    yield from _certificates()
    yield from _proofs()
    yield from _swarms()
    yield from _numbers()


def _topic(use: str, island: int) -> str:
    return f"{use}/{island}" if island else use


def _on(use: str, island: int, name: str, data: bytes, lives: bool) -> Case:
    rule = None if lives else {"rollouts": "R6.7", "certificates": "R6.8", "equivocations": "R6.9"}[use]
    known = () if use == "certificates" else ("alice", "bob")
    topic = _topic(use, island)
    label = f"{name} on {topic}"
    return one(label, rule, data, topic=topic, manifest="four islands", certificates=known)


def _rollouts() -> Iterator[Case]:
    for island in range(6):
        yield _on("rollouts", island, "a rollout of epoch 3", ALICE.rollout(FOUR), lives=island == 3)
        before = ALICE.rollout(FOUR, f2=2)
        yield _on("rollouts", island, "a rollout of epoch 2", before, lives=island == 0)


def _order() -> Iterator[Case]:
    def case(name: str, rule: str, data: bytes, island: int = 1) -> Case:
        return one(name, rule, data, topic=_topic("rollouts", island), manifest="four islands")

    forged = frame(FOUR, payload=cbor(ALICE.fields()))
    yield case("elsewhere and forged", "R6.7", forged)
    yield case("at home and forged", "R7.1", forged, island=3)
    yield case("elsewhere and too late", "R3.2", ALICE.rollout(FOUR, f2=0))
    yield case("elsewhere and in a slot beyond", "R6.7", ALICE.rollout(FOUR, f3=32))
    yield case("elsewhere and not introduced", "R6.7", STRANGER.rollout(FOUR), island=2)
    yield case("at home and not introduced", "R5.1", STRANGER.rollout(FOUR), island=1)


def _moves() -> Iterator[Case]:
    def case(name: str, *messages: tuple[str | None, bytes, int]) -> Case:
        steps = (Message(rule, data, _topic("rollouts", on)) for rule, data, on in messages)
        return Case(name, tuple(steps), manifest="four islands")

    old, new = ALICE.rollout(FOUR, f2=2), ALICE.rollout(FOUR)
    yield case("both homes in the overlap", (None, old, 0), (None, new, 3))
    yield case("the homes exchanged", ("R6.7", old, 3), ("R6.7", new, 0))
    yield case("elsewhere, then at home", ("R6.7", new, 0), (None, new, 3), ("R4.1", new, 0))
    second = ALICE.rollout(FOUR, f5=[b"9"])
    yield case("a second content elsewhere", (None, new, 3), ("R6.7", second, 0), ("R6.4", second, 3))


def _certificates() -> Iterator[Case]:
    for island in range(5):
        data = ALICE.certificate(FOUR)
        yield _on("certificates", island, "a certificate", data, lives=island in (0, 3))
    forged = frame(FOUR, kind=1, payload=_payload(ALICE.certificate(FOUR)))
    yield one(
        "a forged certificate elsewhere", "R6.8", forged, topic="certificates/1", manifest="four islands"
    )
    yield one("a forged certificate at home", "R7.1", forged, topic="certificates/3", manifest="four islands")
    for island in range(5):
        yield one(
            f"an auditor's certificate on island {island}",
            None,
            ALICE.certificate(FOUR),
            topic=_topic("certificates", island),
            manifest="four islands",
            certificates=(),
            auditors=(ALICE.account.hex(),),
        )
    early = ALICE.certificate(FOUR, GENESIS, GENESIS + 86_400)
    for offset, on in ((0, "certificates"), (240_000, "certificates/3"), (420_000, "certificates/1")):
        yield one(
            f"a certificate {offset} ms later on {on}",
            None,
            early,
            topic=on,
            offset_ms=offset,
            manifest="four islands",
            certificates=(),
        )


def _payload(message: bytes) -> bytes:
    """Return the payload of an envelope, which the signature's 67 bytes follow."""
    head = message.index(b"\x03", 40)  # the key behind the swarm id
    size = message[head + 2]
    return message[head + 3 : head + 3 + size]


def _proofs() -> Iterator[Case]:
    for island in range(5):
        yield _on("equivocations", island, "a proof of epoch 3", proof(ALICE, FOUR), lives=island in (0, 3))
        old = proof(BOB, FOUR, f2=1)
        yield _on("equivocations", island, "a proof of epoch 1", old, lives=island in (0, 3))
    known = Message(None, MALLORY.certificate(FOUR), "certificates/1")
    for island, rule in ((0, "R6.9"), (1, None), (2, None), (3, "R6.9")):
        ancient = Message(rule, proof(MALLORY, FOUR, f2=0), _topic("equivocations", island))
        name = f"a proof of epoch 0 on island {island}, of an account that has moved since"
        yield Case(name, (known, ancient), manifest="four islands")


def _swarms() -> Iterator[Case]:
    yield one("on the only island", None, ALICE.rollout(MANIFESTS["one island"]), manifest="one island")
    data = ALICE.rollout(MANIFESTS["one island"])
    yield one("beside the only island", "R6.7", data, topic="rollouts/1", manifest="one island")
    chained = "islands by the chain"
    data = ALICE.rollout(MANIFESTS[chained])
    yield one("before anything is final", None, data, manifest=chained)
    yield one("beside it before anything is final", "R6.7", data, topic="rollouts/1", manifest=chained)


def _numbers() -> Iterator[Case]:
    swarm = MANIFESTS["two to an island"]

    def case(name: str, island: int, rule: str | None, data: bytes, paid: Paid, **options: Any) -> Case:
        label = f"{name} on island {island}"
        return one(
            label,
            rule,
            data,
            topic=_topic(options.pop("use", "rollouts"), island),
            manifest="two to an island",
            paid=paid,
            **options,
        )

    now, before, mallorys = ALICE.rollout(swarm), ALICE.rollout(swarm, f2=2), MALLORY.rollout(swarm)
    for island in range(4):
        four: Paid = ((3, (5,)),)
        yield case("four islands from now on", island, None if island == 3 else "R6.7", now, four)
        yield case("one island before", island, None if island == 0 else "R6.7", before, four)
        certificate, lives = ALICE.certificate(swarm), island in (0, 3)
        rule = None if lives else "R6.8"
        yield case("who moves", island, rule, certificate, four, use="certificates", certificates=())
    for island in range(3):
        two: Paid = ((2, (3,)),)
        yield case("the last known number", island, None if island == 1 else "R6.7", now, two)
        rule = None if island == 0 else "R6.7"
        yield case("it for another", island, rule, mallorys, two, certificates=("mallory",))
        one_again: Paid = ((2, (3,)), (3, (3, 1, 1, 1, 1, 1, 1)))
        yield case("one island again", island, rule, now, one_again)
        yield case("two islands before", island, None if island == 1 else "R6.7", before, one_again)
        few_epochs: Paid = ((3, (3, 1, 1, 1, 1, 1)),)
        yield case("two islands still", island, None if island == 1 else "R6.7", now, few_epochs)
        kept: Paid = ((3, (3, 2)),)
        yield case("two islands for two", island, None if island == 1 else "R6.7", now, kept)
    later: Paid = ((4, (5,)),)
    yield case("only a later number", 0, None, now, later)
    yield case("only a later number", 3, "R6.7", now, later)
