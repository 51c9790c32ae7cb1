"""Reserved values for later versions: ignored by both implementations with any content, rejected outside."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.node import ReferenceNode
from vectors.cases_reserved import AUDITORS, SHAPES
from vectors.pipeline import Pipeline
from vectors.raw import cbor
from vectors.world import ALICE, LATER_KINDS, NOW_MS, PLAIN, frame_fields

from sapo_protocol.identifiers import Account
from sapo_protocol.manifest_file import manifest_to_json

ATOMS = st.integers(0, 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=10)
VALUES = (
    ATOMS
    | st.lists(ATOMS, max_size=3)
    | st.dictionaries(st.integers(0, 2**64 - 1), ATOMS, max_size=3).map(
        lambda fields: dict(sorted(fields.items()))
    )
)
"""Anything that the encoding carries, small enough for several of them in one object."""


def _both(topic: str, data: bytes) -> Any:
    """Return the outcome of a message at a node of each implementation, which is the same."""
    accounts = [bytes.fromhex(account) for account in AUDITORS]
    second = ReferenceNode(json.loads(manifest_to_json(PLAIN)), accounts)
    second.validate("certificates", ALICE.certificate(), NOW_MS)
    first = Pipeline(PLAIN, map(Account, accounts), (ALICE.certificate(),), NOW_MS / 1000)
    outcome = first.validate(topic, data, NOW_MS)
    assert second.validate(topic, data, NOW_MS) == outcome
    return outcome


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.kind.name.lower())
@given(st.data())
def test_a_reserved_key_anywhere_is_ignored_by_both_implementations(shape: Any, data: st.DataObject) -> None:
    """Whatever the other fields hold, and whatever stands behind it."""
    keys = st.integers(shape.first, 23)
    more = data.draw(st.dictionaries(keys, VALUES, min_size=1, max_size=3))
    wrong = data.draw(st.dictionaries(st.sampled_from(sorted(shape.fields)), VALUES, max_size=2))
    assert _both(shape.topic, shape.sealed(wrong | more)) == ("ignore", "reserved", shape.reserved)


@given(st.dictionaries(st.integers(5, 23), VALUES, min_size=1, max_size=3))
def test_keys_added_to_an_envelope_are_ignored_by_both_implementations(more: dict[int, Any]) -> None:
    fields = frame_fields(payload=cbor(ALICE.fields()), signature=ALICE.rollout()[-64:])
    data = cbor({key: (fields | more)[key] for key in sorted(fields | more)})
    assert _both("rollouts", data) == ("ignore", "reserved", "R1.0.16")


@given(
    st.sampled_from(LATER_KINDS),
    st.binary(max_size=300),
    st.binary(min_size=64, max_size=64),
    st.sampled_from(SHAPES),
)
def test_a_reserved_kind_is_ignored_by_both_implementations(
    kind: int, payload: bytes, signature: bytes, shape: Any
) -> None:
    data = cbor(frame_fields(kind=kind, payload=payload, signature=signature))
    assert _both(shape.topic, data) == ("ignore", "reserved", "R2.6")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.kind.name.lower())
@given(st.integers(24, 2**64 - 1), st.booleans())
def test_a_key_beyond_the_reserved_range_is_rejected_in_any_case(shape: Any, key: int, besides: bool) -> None:
    more = {shape.first: 0} if besides else {}
    assert _both(shape.topic, shape.sealed(more | {key: 0})) == ("reject", "schema", shape.keys)
