"""Rollouts: closed schema, every bound, nothing that a receiver can derive."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import damaged, rollouts
from support.swarm import Identity
from support.verdicts import reason_of

from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.errors import LocalProtocolError, Reason
from sapo_protocol.identifiers import Digest
from sapo_protocol.rollout import Rollout, parse_rollout

ROLLOUT = Identity(1).rollout(policy_tag=Digest(b"\x05" * 32))
FIELDS: dict[int, Value] = {
    0: bytes(ROLLOUT.node),
    1: bytes(ROLLOUT.account),
    2: ROLLOUT.epoch,
    3: ROLLOUT.slot,
    4: ROLLOUT.family,
    5: ROLLOUT.completions,
    6: b"\x05" * 32,
}


@given(rollouts)
def test_a_rollout_is_parsed_from_its_payload(rollout: Rollout) -> None:
    assert parse_rollout(rollout.to_payload()) == rollout


def test_the_fields_on_the_wire() -> None:
    assert ROLLOUT.to_payload() == encode(FIELDS)
    assert [field.name for field in dataclasses.fields(Rollout)] == [
        "node",
        "account",
        "epoch",
        "slot",
        "family",
        "completions",
        "policy_tag",
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({0: bytes(31)}, Reason.SCHEMA),
        ({1: bytes(21)}, Reason.SCHEMA),
        ({2: b"3"}, Reason.SCHEMA),
        ({2: 2**64 - 1}, None),
        ({3: 2**32 - 1}, None),
        ({3: 2**32}, Reason.OUT_OF_BOUNDS),
        ({4: 255}, None),
        ({4: 256}, Reason.OUT_OF_BOUNDS),
        ({5: b"7"}, Reason.SCHEMA),
        ({5: ()}, Reason.OUT_OF_BOUNDS),
        ({5: (b"",) * 16}, None),
        ({5: (b"7",) * 17}, Reason.OUT_OF_BOUNDS),
        ({5: ("7",)}, Reason.SCHEMA),
        ({5: ((b"7",),)}, Reason.SCHEMA),
        ({5: (b"\xff",)}, Reason.SCHEMA),
        ({5: (b"\xed\xa0\x80",)}, Reason.SCHEMA),
        ({5: (bytes(8192),)}, None),
        ({5: (bytes(8193),)}, Reason.OUT_OF_BOUNDS),
        ({5: (bytes(8192),) * 8}, None),
        ({5: (*(bytes(8192),) * 8, b"7")}, Reason.OUT_OF_BOUNDS),
        ({6: bytes(31)}, Reason.SCHEMA),
        ({7: 1}, Reason.RESERVED),
        ({5: (), 23: 1}, Reason.RESERVED),
        ({24: 1}, Reason.SCHEMA),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_bound_has_its_reason(changes: dict[int, Value], reason: Reason | None) -> None:
    assert reason_of(parse_rollout, encode({**FIELDS, **changes})) is reason


@pytest.mark.parametrize("key", range(7))
def test_all_but_the_tag_are_required(key: int) -> None:
    payload = encode({other: value for other, value in FIELDS.items() if other != key})
    assert reason_of(parse_rollout, payload) is (None if key == 6 else Reason.SCHEMA)


@given(st.binary(max_size=300) | damaged(encode(FIELDS)))
def test_any_bytes_are_a_rollout_or_refused(payload: bytes) -> None:
    if reason_of(parse_rollout, payload) is None:
        assert parse_rollout(payload).to_payload() == payload


@pytest.mark.parametrize(
    "changes",
    [{"completions": ()}, {"completions": (b"\xff",)}, {"slot": 2**32}, {"family": 256}, {"epoch": -1}],
    ids=str,
)
def test_a_rollout_that_others_would_refuse_cannot_be_created(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        dataclasses.replace(ROLLOUT, **changes).to_payload()
