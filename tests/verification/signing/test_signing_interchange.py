"""The signing history as a file: round trip, and refusal of everything else."""

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark, Mark, SigningDatabase, SlotShare
from sapo_verification.signing.interchange import SigningHistory

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
APPROVAL = ApprovalMark(MARK.swarm_id, MARK.account, epoch=6, turn=3, root=Digest(b"\x02" * 32))
APPROVAL_RECORD = {
    "swarm": RECORD["swarm"],
    "account": RECORD["account"],
    "epoch": 6,
    "turn": 3,
    "root": "02" * 32,
}
DOCUMENT = {"format": "sapo-signing", "version": 2, "marks": [RECORD], "approvals": [APPROVAL_RECORD]}
OLD = {"format": "sapo-signing", "version": 1, "marks": [RECORD]}

marks = st.builds(
    Mark,
    fixed(SwarmId),
    fixed(Account),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.just(SlotShare()),
)


approvals = st.builds(
    ApprovalMark,
    fixed(SwarmId),
    fixed(Account),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**32 - 1),
    fixed(Digest),
)


def _each_once(some: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(some, max_size=5, unique_by=lambda mark: (mark.swarm_id, mark.account)).map(tuple)


@given(st.builds(SigningHistory, _each_once(marks), _each_once(approvals)))
def test_a_history_is_imported_as_it_was_exported(history: SigningHistory) -> None:
    assert SigningHistory.from_json(history.to_json()) == history


def test_format_of_a_worked_example() -> None:
    history = SigningHistory((MARK,), (APPROVAL,))
    assert json.loads(history.to_json()) == DOCUMENT
    assert SigningHistory.from_json(json.dumps(DOCUMENT)) == history


def test_after_a_file_without_approvals_no_epoch_of_it_can_be_approved() -> None:
    """Version 1 did not say what was approved: whoever approves again could lose the bond."""
    history = SigningHistory.from_json(json.dumps(OLD))
    unknown = ApprovalMark(MARK.swarm_id, MARK.account, 7, 2**32 - 1, UNKNOWN_ROOT)
    assert history == SigningHistory((MARK,), (unknown,))
    database = SigningDatabase(":memory:")
    database.raise_marks(history.marks, history.approvals)
    assert not database.approve(replace(APPROVAL, epoch=7))
    assert not database.approve(unknown)
    assert database.approve(replace(APPROVAL, epoch=8, turn=0))


def _with(**changes: Any) -> Any:
    return {**DOCUMENT, "marks": [{**RECORD, **changes}]}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**DOCUMENT, "format": "other"},
        {**DOCUMENT, "version": 3},
        {**DOCUMENT, "version": True},
        {**DOCUMENT, "version": [2]},
        {**DOCUMENT, "version": 1},
        {**OLD, "version": 2},
        {**DOCUMENT, "approvals": 1},
        {**DOCUMENT, "approvals": [RECORD]},
        {**DOCUMENT, "approvals": [APPROVAL_RECORD, APPROVAL_RECORD]},
        {**DOCUMENT, "approvals": [{**APPROVAL_RECORD, "turn": -1}]},
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
        SigningHistory.from_json(json.dumps(document))


@given(st.text(max_size=200))
def test_text_that_is_no_history_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        SigningHistory.from_json(text)


def test_deep_nesting_is_refused_whatever_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)  # as libraries of the node do
    try:
        with pytest.raises(LocalProtocolError):
            SigningHistory.from_json("[" * 100_000)
    finally:
        sys.setrecursionlimit(before)
