"""The signing history as a file: round trip, and refusal of everything else."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, SwarmId
from sapo_verification.signing.database import Mark, SlotShare
from sapo_verification.signing.interchange import marks_from_json, marks_to_json

MARK = Mark(
    swarm_id=SwarmId(b"\x01" * 32),
    account=Account(b"\x0a" * 20),
    epoch=7,
    next_slot=12,
    share=SlotShare(1, 2),
)
RECORD = {
    "swarm": "01" * 32,
    "account": "0x0A0A0a0a0a0a0a0A0a0a0A0a0A0A0A0a0a0a0a0a",
    "epoch": 7,
    "next_slot": 12,
    "share": "1/2",
}
DOCUMENT = {"format": "sapo-signing", "version": 1, "marks": [RECORD]}

marks = st.builds(
    Mark,
    fixed(SwarmId),
    fixed(Account),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.just(SlotShare()),
)


@given(st.lists(marks, max_size=5, unique_by=lambda mark: (mark.swarm_id, mark.account)))
def test_round_trip(some: list[Mark]) -> None:
    assert marks_from_json(marks_to_json(some)) == tuple(some)


def test_the_format_by_hand() -> None:
    assert json.loads(marks_to_json([MARK])) == DOCUMENT
    assert marks_from_json(json.dumps(DOCUMENT)) == (MARK,)


def _with(**changes: Any) -> Any:
    return {**DOCUMENT, "marks": [{**RECORD, **changes}]}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**DOCUMENT, "format": "other"},
        {**DOCUMENT, "version": 2},
        {**DOCUMENT, "extra": 1},
        {**DOCUMENT, "marks": {}},
        {**DOCUMENT, "marks": [RECORD, RECORD]},
        {**DOCUMENT, "marks": [1]},
        _with(extra=1),
        _with(epoch=-1),
        _with(epoch=True),
        _with(epoch="7"),
        _with(epoch=7.0),
        _with(epoch=2**63),
        _with(next_slot=None),
        _with(share="2/2"),
        _with(share=1),
        _with(swarm="01" * 31),
        _with(swarm="zz" * 32),
        _with(account=12),
    ],
)
def test_anything_else_is_refused(document: Any) -> None:
    with pytest.raises(LocalProtocolError):
        marks_from_json(json.dumps(document))


@given(st.text(max_size=200))
def test_text_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        marks_from_json(text)


def test_deep_nesting_is_refused_whatever_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)  # as libraries of the node do
    try:
        with pytest.raises(LocalProtocolError):
            marks_from_json("[" * 100_000)
    finally:
        sys.setrecursionlimit(before)
