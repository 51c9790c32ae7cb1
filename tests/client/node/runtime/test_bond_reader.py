"""Reading the bonds of an epoch: once each, again after an error, without penalties in between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import trio
from support.swarm import Identity, make_chain_manifest

from sapo_client.ledger.errors import BondsHidden
from sapo_client.node.runtime.bonds import BondReader
from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog, read_events
from sapo_client.observe.health import BondFacts
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import BondGate, EasGate, OpenGate
from sapo_verification.standing import Standing

ALICE, BOB = (Identity(number).account for number in (1, 2))
GATE = BondGate(Account(b"\x04" * 20), unit=10, exit_seconds=2**32)
MANIFEST = make_chain_manifest(version=2, gate=GATE, finality_seconds=12)


class Chain:
    """A chain's bonds before a time; times that were not set are hidden."""

    def __init__(self) -> None:
        self.bonds: dict[int, Mapping[Account, int]] = {}
        self.asked: list[int] = []

    async def bonds_before(self, timestamp_seconds: int) -> Mapping[Account, int]:
        self.asked.append(timestamp_seconds)
        if timestamp_seconds not in self.bonds:
            raise BondsHidden(7)
        return self.bonds[timestamp_seconds]


def moment_of(epoch: int) -> int:
    """Return the time that the block of an epoch's beacon precedes."""
    return epoch_start_seconds(MANIFEST, epoch) - 12


def _reader(
    standing: Standing, chain: Chain, clock: Clock, log: EventLog, manifest: Manifest = MANIFEST
) -> BondReader:
    return BondReader(
        standing, manifest=manifest, own=ALICE, bonds_before=chain.bonds_before, clock=clock, events=log
    )


async def test_bonds_are_read_once_for_each_epoch_and_an_error_is_reported(tmp_path: Path) -> None:
    chain, standing, log = Chain(), Standing(MANIFEST, BOB), EventLog(tmp_path / "events.jsonl")
    now = [float(epoch_start_seconds(MANIFEST, 5))]
    reader = _reader(standing, chain, lambda: now[0], log)
    chain.bonds = {moment_of(4): {ALICE: 10}, moment_of(5): {ALICE: 5}}
    assert [await reader.look(), await reader.look()] == [True, True]
    assert chain.asked == [moment_of(5), moment_of(4)]
    assert reader.facts() == BondFacts(str(ALICE), part=0.5)

    now[0] += MANIFEST.epoch_seconds
    assert [await reader.look(), await reader.look()] == [False, False]
    facts = reader.facts()
    assert facts is not None
    assert (facts.part, facts.trouble is not None, facts.unread_seconds is not None) == (None, True, True)
    standing.require(ALICE, 6)  # by the bonds of the epoch before
    chain.bonds[moment_of(6)] = {}
    assert await reader.look()
    assert reader.facts() == BondFacts(str(ALICE), part=0.0)
    told = [event for event in read_events(tmp_path / "events.jsonl") if event["event"] == "ledger_error"]
    assert len(told) == 1


async def test_an_epoch_before_the_chain_does_not_prevent_the_present_one(tmp_path: Path) -> None:
    chain, standing = Chain(), Standing(MANIFEST, BOB)
    chain.bonds = {moment_of(5): {ALICE: 1}}
    now = float(epoch_start_seconds(MANIFEST, 5))
    reader = _reader(standing, chain, lambda: now, EventLog(tmp_path / "e.jsonl"))
    assert not await reader.look()
    assert reader.facts() == BondFacts(str(ALICE), part=0.1)


async def test_with_an_attestation_gate_the_facts_name_the_attesters(tmp_path: Path) -> None:
    gate = EasGate(Account(b"\x05" * 20), Digest(b"\x06" * 32), (BOB,), after_block=0)
    chain, manifest = Chain(), make_chain_manifest(version=2, gate=gate)
    chain.bonds = {moment_of(4): {}, moment_of(5): {ALICE: 3}}
    now = float(epoch_start_seconds(manifest, 5))
    reader = _reader(Standing(manifest, BOB), chain, lambda: now, EventLog(tmp_path / "e.jsonl"), manifest)
    assert await reader.look()
    assert reader.facts() == BondFacts(str(ALICE), part=1.0, attesters=(str(BOB),))


async def test_without_a_gate_nothing_is_read(tmp_path: Path) -> None:
    chain, manifest = Chain(), make_chain_manifest(version=2, gate=OpenGate())
    now = float(epoch_start_seconds(manifest, 5))
    log = EventLog(tmp_path / "e.jsonl")
    reader = _reader(Standing(manifest, BOB), chain, lambda: now, log, manifest)
    with trio.fail_after(5):
        await reader.run()
    assert (chain.asked, reader.facts()) == ([], None)
