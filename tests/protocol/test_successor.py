"""Successors of a swarm's terms: permitted changes, and the terms in force in each epoch."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from support.swarm import Identity, make_chain_manifest, make_manifest, make_suite

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import (
    manifest_from_json,
    manifest_to_json,
    successor_from_json,
    successor_to_json,
)
from sapo_protocol.suite import Suite
from sapo_protocol.terms.auditors import Auditors, Replacement
from sapo_protocol.terms.difficulty import Difficulty
from sapo_protocol.terms.successor import Successor, successor_digest
from sapo_verification.suites.catalogue import REASONING_GYM, family

MANIFEST = make_chain_manifest()
MORE = Suite(
    REASONING_GYM, (*MANIFEST.suite.families, family("calendar_arithmetic", "nano")), Digest(bytes(32))
)


def successor(manifest: Manifest = MANIFEST, **changes: Any) -> Successor:
    """Return terms with one family more, twice the slots and smaller groups."""
    terms = Successor(manifest.swarm_id, MORE, slots_per_epoch=64, max_completions=6)
    return replace(terms, **changes)


def test_each_epoch_has_its_own_terms() -> None:
    after = MANIFEST.succeeded_by(20, successor())
    after = after.succeeded_by(40, successor(slots_per_epoch=16, max_completions=7, retired=(1,)))
    found = [(after.limits_at(epoch), tuple(after.families_at(epoch))) for epoch in (19, 20, 39, 40)]
    first, second = Limits(32, 8, 16), Limits(64, 6, 16)
    assert found == [
        (first, (0, 1, 2)),
        (second, (0, 1, 2, 3)),
        (second, (0, 1, 2, 3)),
        (Limits(16, 7, 16), (0, 2, 3)),
    ]
    assert [after.completions_from(epoch) for epoch in (0, 20, 40)] == [6, 6, 7]


def test_the_swarm_id_is_that_of_the_first_manifest() -> None:
    after = MANIFEST.succeeded_by(20, successor())
    assert after.swarm_id == MANIFEST.swarm_id
    assert manifest_from_json(manifest_to_json(after)) == MANIFEST


def test_without_a_successor_nothing_changes() -> None:
    assert MANIFEST.limits_at(10**6) == MANIFEST.limits
    assert tuple(MANIFEST.families_at(10**6)) == (0, 1, 2)


@pytest.mark.parametrize(
    ("manifest", "changes", "why"),
    [
        (MANIFEST, {"lineage": SwarmId(sha256(b"another").digest())}, "another swarm"),
        (make_manifest(), {}, "without a chain"),
        (MANIFEST, {"suite": replace(MORE, families=MORE.families[1:])}, "keep their places"),
        (MANIFEST, {"suite": replace(MORE, families=MORE.families[::-1])}, "keep their places"),
        (MANIFEST, {"suite": make_suite(families=("basic_arithmetic",))}, "keep their places"),
        (MANIFEST, {"suite": replace(MORE, reasoning_gym="0.0.1")}, "release"),
    ],
)
def test_fields_that_a_successor_cannot_change_are_refused(
    manifest: Manifest, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        manifest.succeeded_by(20, successor(manifest, **changes))


def test_successors_follow_each_other() -> None:
    after = MANIFEST.succeeded_by(20, successor())
    for epoch in (0, 19, 20):
        with pytest.raises(LocalProtocolError, match="from epoch 20 on"):
            after.succeeded_by(epoch, successor())


def test_with_ladders_the_families_cannot_change() -> None:
    ladders = make_chain_manifest(version=2, difficulty=Difficulty(((0, 1, 2),), 4))
    limits_alone = Successor(ladders.swarm_id, ladders.suite, slots_per_epoch=64, max_completions=6)
    assert ladders.succeeded_by(20, limits_alone).limits_at(20) == Limits(64, 6, 16)
    for changes in ({"suite": MORE}, {"retired": (0,)}):
        with pytest.raises(LocalProtocolError, match="families stay"):
            ladders.succeeded_by(20, replace(limits_alone, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"slots_per_epoch": 0},
        {"max_completions": 0},
        {"max_completions": 17},
        {"slots_per_epoch": 2**64},
        {"retired": (1, 0)},
        {"retired": (0, 0)},
        {"retired": (4,)},
        {"retired": (-1,)},
        {"retired": (0, 1, 2, 3)},
    ],
)
def test_invalid_terms_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        successor(**changes)


def test_a_document_round_trips() -> None:
    terms = successor(retired=(1,))
    assert successor_from_json(successor_to_json(terms)) == terms


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"successor": 1', b'"successor": 2'),
        (b'"successor": 1', b'"successor": true'),
        (b'"successor": 1', b'"successor": 1.0'),
        (b'"lineage": "', b'"lineage": " '),
        (b'"level": "nano"', b'"level": "\\ud83d"'),
        (b'"retired": []', b'"retired": [], "epoch_seconds": 5'),
        (b'"slots_per_epoch": 64', b'"slots_per_epoch": "64"'),
        (b'"successor": 1', b"\xff"),
        (b'"max_completions": 6', b'"max_completions": 17'),
    ],
)
def test_a_document_with_unknown_fields_or_values_is_refused(old: bytes, new: bytes) -> None:
    document = successor_to_json(successor())
    assert old in document
    with pytest.raises(LocalProtocolError):
        successor_from_json(document.replace(old, new))


def test_the_digest_is_that_of_the_bytes() -> None:
    document = successor_to_json(successor())
    assert successor_digest(document) == sha256(b"sapo/1/successor\x00" + document).digest()
    assert successor_digest(document + b" ") != successor_digest(document)


def test_each_epoch_has_its_own_auditors() -> None:
    a, b, c, d, e = sorted(Identity(number).account for number in range(1, 6))
    auditors = Auditors((b, c, d), (Replacement(10, c, a), Replacement(20, a, e)))
    assert [auditors.of(epoch) for epoch in (9, 10, 19, 20)] == [(b, c, d), (a, b, d), (a, b, d), (b, d, e)]
    assert auditors.within(0, 9) == {b, c, d}
    assert auditors.within(9, 10) == {a, b, c, d}
    assert auditors.within(10, 19) == {a, b, d}
    assert auditors.within(0, 30) == auditors.all_accounts == {a, b, c, d, e}
