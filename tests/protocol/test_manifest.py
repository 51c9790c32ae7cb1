"""The manifest's digest: everything hashed changes it, nothing else does."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.swarm import make_chain_manifest, make_manifest

from sapo_protocol.eip712 import Domain
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.suite import Family, Suite
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.difficulty import Difficulty
from sapo_protocol.terms.gate import BondGate, EasGate, OpenGate
from sapo_protocol.terms.islands import IslandTerms

BOND = BondGate(Account(bytes(19) + b"\x04"), unit=10**20, exit_seconds=99 + 99 * 14)
EAS = EasGate(Account(bytes(19) + b"\x05"), Digest(bytes(32)), (Account(bytes(20)), Account(b"\x01" * 20)), 0)
ISLANDS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=144, most_islands=64, count=4)

AUDITS = AuditTerms(samples=4, one_in=16)
LADDERS = Difficulty(ladders=((0, 1),), completions=2)

Change = Callable[[Manifest], Manifest]


def in_family(**changes: Any) -> Change:
    def change(manifest: Manifest) -> Manifest:
        first, *others = manifest.suite.families
        families = (replace(first, **changes), *others)
        return replace(manifest, suite=replace(manifest.suite, families=families))

    return change


def in_suite(**changes: Any) -> Change:
    return lambda manifest: replace(manifest, suite=replace(manifest.suite, **changes))


def in_limits(**changes: int) -> Change:
    return lambda manifest: replace(manifest, limits=replace(manifest.limits, **changes))


def in_manifest(**changes: Any) -> Change:
    return lambda manifest: replace(manifest, **changes)


HASHED: dict[type, dict[str, Change]] = {
    Manifest: {
        "chain_id": in_manifest(chain_id=7),
        "registry": in_manifest(registry=Account(b"\x09" * 20)),
        "ledger": in_manifest(ledger=Account(b"\x09" * 20)),
        "finality_seconds": in_manifest(finality_seconds=99),
        "genesis_seconds": in_manifest(genesis_seconds=99),
        "epoch_seconds": in_manifest(epoch_seconds=99),
        "suite": in_suite(reasoning_gym="0.1.19"),
        "limits": in_limits(max_completions=3),
        "version": in_manifest(version=2, gate=None, difficulty=None, islands=None),
        "gate": in_manifest(gate=OpenGate()),
        "difficulty": in_manifest(difficulty=None),
        "islands": in_manifest(islands=None),
        "audits": in_manifest(difficulty=None, audits=AUDITS),  # there is no manifest with both
    },
    AuditTerms: {
        "samples": in_manifest(difficulty=None, audits=replace(AUDITS, samples=5)),
        "one_in": in_manifest(difficulty=None, audits=replace(AUDITS, one_in=32)),
    },
    Difficulty: {
        "ladders": in_manifest(difficulty=replace(LADDERS, ladders=((1, 0),))),
        "step": in_manifest(difficulty=replace(LADDERS, step=9)),
        "floor": in_manifest(difficulty=replace(LADDERS, floor=9)),
        "groups": in_manifest(difficulty=replace(LADDERS, groups=9)),
        "completions": in_manifest(difficulty=replace(LADDERS, completions=3)),
    },
    BondGate: {
        "contract": in_manifest(gate=replace(BOND, contract=Account(b"\x09" * 20))),
        "unit": in_manifest(gate=replace(BOND, unit=256)),
        "exit_seconds": in_manifest(gate=replace(BOND, exit_seconds=2**32)),
    },
    EasGate: {
        "contract": in_manifest(gate=replace(EAS, contract=Account(b"\x09" * 20))),
        "schema": in_manifest(gate=replace(EAS, schema=Digest(b"\x09" * 32))),
        "attesters": in_manifest(gate=replace(EAS, attesters=EAS.attesters[1:])),
        "after_block": in_manifest(gate=replace(EAS, after_block=1)),
    },
    IslandTerms: {
        "most_accounts": in_manifest(islands=replace(ISLANDS, most_accounts=65)),
        "least_accounts": in_manifest(islands=replace(ISLANDS, least_accounts=25)),
        "period_epochs": in_manifest(islands=replace(ISLANDS, period_epochs=145)),
        "most_islands": in_manifest(islands=replace(ISLANDS, most_islands=128)),
        "count": in_manifest(islands=replace(ISLANDS, count=None)),
    },
    Suite: {
        "reasoning_gym": in_suite(reasoning_gym="0.1.24"),
        "families": lambda m: in_suite(families=m.suite.families[::-1])(m),
        "sample_digest": in_suite(sample_digest=Digest(bytes(32))),
    },
    Family: {
        "name": in_family(name="other"),
        "level": in_family(level="other"),
        "config": in_family(config='{"size":2}'),
        "scorer": in_family(scorer="other/1"),
        "prompt": in_family(prompt="{question}"),
        "answer": in_family(answer="tag"),
        "max_completion_bytes": in_family(max_completion_bytes=77),
    },
    Limits: {
        "slots_per_epoch": in_limits(slots_per_epoch=5),
        "max_completions": in_limits(max_completions=4),
        "points_per_epoch": in_limits(points_per_epoch=5),
    },
}
NOT_HASHED: dict[str, Change] = {
    "name": in_manifest(name="another name"),
    "bootstrap": in_manifest(bootstrap=("/ip4/127.0.0.1/tcp/4001",)),
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(c, id=f"{t.__name__}.{f}") for t, fields in HASHED.items() for f, c in fields.items()],
)
def test_every_hashed_field_is_in_the_swarm_id(change: Change) -> None:
    manifest = make_chain_manifest(version=2, gate=BOND, difficulty=LADDERS, islands=ISLANDS)
    if change in HASHED[EasGate].values():
        manifest = replace(manifest, gate=EAS)
    if change is HASHED[Manifest]["version"]:
        manifest = replace(manifest, gate=None, difficulty=None, islands=None, version=1)
    assert change(manifest) != manifest
    assert change(manifest).swarm_id != manifest.swarm_id


@pytest.mark.parametrize("change", [pytest.param(c, id=f) for f, c in NOT_HASHED.items()])
def test_names_and_addresses_are_not_in_the_swarm_id(change: Change) -> None:
    manifest = make_chain_manifest()
    assert change(manifest) != manifest
    assert change(manifest).swarm_id == manifest.swarm_id


@pytest.mark.parametrize("type_", list(HASHED), ids=lambda type_: type_.__name__)
def test_every_field_is_hashed_or_listed_as_not_hashed(type_: type) -> None:
    fields = {field.name for field in dataclasses.fields(type_)}
    others = {*NOT_HASHED, "first", "successions"} if type_ is Manifest else set()  # see test_successor.py
    assert fields == set(HASHED[type_]) | others


def test_swarm_ids_differ_among_all_changes() -> None:
    manifest = make_chain_manifest(version=2, gate=BOND, difficulty=LADDERS, islands=ISLANDS)
    ids = {change(manifest).swarm_id for fields in HASHED.values() for change in fields.values()}
    assert len(ids) == sum(map(len, HASHED.values()))


def test_domains_name_the_contracts() -> None:
    manifest = make_chain_manifest()
    assert manifest.has_chain
    assert manifest.binding_domain == Domain(31337, Account(bytes(19) + b"\x01"))
    assert manifest.ledger_domain == Domain(31337, Account(bytes(19) + b"\x02"))
    assert not make_manifest().has_chain
    assert make_manifest().binding_domain == make_manifest().ledger_domain == Domain(0, Account(bytes(20)))


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch_seconds": 0},
        {"chain_id": 5},
        {"registry": Account(bytes(20))},
        {"ledger": Account(bytes(20))},
        {"registry": Account(bytes(20)), "ledger": Account(bytes(20))},
        {"chain_id": 5, "registry": Account(bytes(20))},
    ],
    ids=str,
)
def test_an_incomplete_chain_and_zero_durations_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        make_manifest(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": 3},
        {"gate": OpenGate()},
        {"version": 1, "gate": BOND},
        {"version": 1, "islands": ISLANDS},
        {
            "version": 2,
            "islands": replace(ISLANDS, count=None),
            "chain_id": 0,
            "registry": None,
            "ledger": None,
        },
        {"version": 2, "gate": replace(BOND, exit_seconds=12 + 14 * 60 - 1)},
        {"version": 2, "gate": BOND, "chain_id": 0, "registry": None, "ledger": None},
        {"version": 2, "gate": EAS, "chain_id": 0, "registry": None, "ledger": None},
    ],
    ids=str,
)
def test_terms_that_contradict_each_other_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        make_chain_manifest(**changes)


@pytest.mark.parametrize("unit", [0, -1, 2**96])
def test_a_unit_of_a_bond_has_bounds(unit: int) -> None:
    with pytest.raises(LocalProtocolError):
        BondGate(Account(bytes(20)), unit, 2**32)


@pytest.mark.parametrize(
    "changes",
    [
        {"least_accounts": 0},
        {"least_accounts": 33},
        {"most_accounts": 2**32},
        {"period_epochs": 0},
        {"period_epochs": 2**16 + 1},
        {"most_islands": 0},
        {"most_islands": 48},
        {"most_islands": 2**17},
        {"count": 0},
        {"count": 3},
        {"count": 128},
    ],
    ids=str,
)
def test_terms_of_islands_have_bounds(changes: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(ISLANDS, **changes)


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 17, 1)])
def test_limits_have_bounds(limits: tuple[int, int, int]) -> None:
    with pytest.raises(LocalProtocolError):
        Limits(*limits)


@pytest.mark.parametrize(
    "change",
    [
        in_family(prompt="no place"),
        in_family(answer="guess"),
        in_family(max_completion_bytes=0),
        in_family(max_completion_bytes=8193),
        in_family(config='{"b":1,"a":2}'),
        in_family(config='{"a": 2}'),
        in_family(config="[]"),
        in_family(config="{"),
        in_suite(families=()),
    ],
)
def test_suites_have_bounds(change: Change) -> None:
    with pytest.raises(LocalProtocolError):
        change(make_manifest())
