"""Epochs, slots, dates and clocks at the ends of their ranges: nobody's leap stops a node or is believed."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from support.swarm import EPOCH, Identity, make_manifest, moment
from support.verification_harness import score_in_process

from sapo_protocol.epochs import beacon
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.engine import Engine

TERMS: Final = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=16, count=4)
UNDIVIDED: Final = make_manifest()
DIVIDED: Final = make_manifest(version=2, islands=TERMS)
ALICE, BOB = Identity(1), Identity(2)
FAR: Final = (EPOCH + 15, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
NOW: Final = moment(UNDIVIDED)
CLOCKS: Final = (0.0, NOW - 3600, NOW, NOW + 3600, NOW + 400 * 86_400, 2.0**32, 2.0**40, 2.0**53, 1e18)
DATES: Final = ((0, 2**64 - 1), (2**63 - 1, 2**63 + 5), (2**64 - 2, 2**64 - 1), (0, 1))


def make_engine(manifest: Manifest) -> Engine:
    """Return an engine that carries all islands and knows Alice's certificate."""

    def beacon_of(epoch: int) -> Digest:
        return beacon(manifest.swarm_id, epoch, b"")

    check = score_in_process(manifest)
    engine = Engine(
        manifest, ":memory:", own=Identity(900).account, check=check, beacon_of=beacon_of, key=b"key"
    )
    engine.carry(engine.islands.all_at(NOW))
    introduce(engine, ALICE, NOW)
    return engine


def introduce(engine: Engine, who: Identity, now_seconds: float) -> None:
    message = who.certificate(engine.manifest).to_bytes()
    for island in engine.islands.carried:
        engine.receive(certificates_topic(engine.manifest.swarm_id, island), message, now_seconds)


def accepted(engine: Engine, now_seconds: float, **changes: int) -> bool:
    """Whether a rollout of Alice is accepted on one of the islands."""
    message = ALICE.message(engine.manifest, **changes)
    topics = (rollouts_topic(engine.manifest.swarm_id, island) for island in engine.islands.carried)
    return any(engine.receive(topic, message, now_seconds).verdict is Verdict.ACCEPT for topic in topics)


@pytest.mark.parametrize("manifest", [UNDIVIDED, DIVIDED], ids=["undivided", "islands"])
def test_leaps_of_others_are_ignored_at_any_clock(manifest: Manifest) -> None:
    engine = make_engine(manifest)
    messages = [ALICE.message(manifest, epoch=epoch, slot=slot) for epoch in FAR for slot in (0, 2**32 - 1)]
    found: Counter[tuple[Verdict, Rule | None]] = Counter()
    for topic in [rollouts_topic(manifest.swarm_id, island) for island in engine.islands.carried]:
        for clock in CLOCKS[:3]:
            for message in messages:
                received = engine.receive(topic, message, clock)
                found[received.verdict, received.rule] += 1
    assert set(found) == {(Verdict.IGNORE, Rule.EPOCH_BEGUN)}
    assert len(engine.pool) == 0


@pytest.mark.parametrize("manifest", [UNDIVIDED, DIVIDED], ids=["undivided", "islands"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_clock_that_leaps_and_returns_loses_nothing(manifest: Manifest, clock: float) -> None:
    """What comes meanwhile is decided by the wrong clock, and what comes after it as if nothing had been."""
    engine = make_engine(manifest)
    assert accepted(engine, NOW, slot=0)
    accepted(engine, clock, slot=1, epoch=max(0, engine.epoch(clock)))
    introduce(engine, BOB, clock)
    assert accepted(engine, NOW + 0.1, slot=2)
    introduce(engine, BOB, NOW + 0.1)
    assert engine.certificates.accounts_of(BOB.node) == (BOB.account,)


@pytest.mark.parametrize("dates", DATES)
def test_certificates_with_dates_at_the_ends_of_their_range_are_refused(dates: tuple[int, int]) -> None:
    engine = make_engine(UNDIVIDED)
    message = BOB.certificate(UNDIVIDED, *dates).to_bytes()
    topic = certificates_topic(UNDIVIDED.swarm_id, 0)
    verdicts = {engine.receive(topic, message, clock).verdict for clock in (NOW, 2.0**40)}
    assert Verdict.ACCEPT not in verdicts
    assert engine.certificates.accounts_of(BOB.node) == ()
