"""The lines of `sapo watch` at any width."""

from __future__ import annotations

import pytest

pytest.importorskip("textual")

from sapo_client.cli.live import formatting

LONG = "number_of_letters_in_a_sentence"
POINT = [0, 0.5, 0.1, 12, 1]


def test_names_are_whole_where_the_terminal_has_room() -> None:
    view = {"figures": {"own": [POINT] * 500, f"own/{LONG}": [POINT] * 500}}
    wide, narrow = formatting.curves(view, 196), formatting.curves(view, 56)
    assert [line.split("▅")[0].split() for line in wide] == [["own", "answers"], LONG.split("_")]
    assert narrow[1].startswith("  number of letter ▅")
    assert max(map(len, narrow)) <= 56
    assert 150 < max(map(len, wide)) <= 196
    rollout = {"content_id": "a" * 64, "own": True, "family": LONG, "reward": 1.0}
    row = {"rollouts": [{**rollout, "state": "refused: a reason of many words"}]}
    assert formatting.rollout_rows(row, 200) == [
        ("a" * 8, "own", LONG.replace("_", " "), "1.00", "✗ a reason of many words")
    ]
    assert formatting.rollout_rows(row, 60) == [("a" * 8, "own", "number of lett", "1.00", "✗ a reason of ")]


def test_groups_without_advantage_are_not_counted_as_refused_as_on_the_page() -> None:
    status = {
        **{"refused": {"no_signal": 17, "code_in_answer": 13, "bad_signature": 2}, "accepted": 30},
        **{"reward": 0.5, "reward_start": 0.0, "round": 1, "epoch": 0, "peers": 1, "pool": 0, "shared": 4},
        **{"alone": False, "ledger": {"enabled": False, "registered": False, "points": 0}},
    }
    assert dict(formatting.figures(status))["refused"] == "33 % of 45 messages, 17 without advantage"


def test_an_empty_log_says_so() -> None:
    assert formatting.log_text({"path": "/node/logs/sapo.log", "lines": []}) == (
        "no lines yet in /node/logs/sapo.log"
    )
    assert formatting.log_text({"path": "/log", "lines": ["a", "b"]}) == "b\na"
