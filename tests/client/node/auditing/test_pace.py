"""The rate of chain queries follows windows and grace periods; a node checks in time for its own duties."""

from __future__ import annotations

import math

import pytest

from sapo_client.node.auditing.pace import settling_pause_seconds, watching_pause_seconds


@pytest.mark.parametrize(
    ("challenge_seconds", "pause_seconds"),
    [
        (6, 1.0),  # epochs of a minute
        (60, 1.0),  # ten minutes on a chain of one machine
        (600, 10.0),  # the shortest window on a public chain
        (3600, 30.0),  # its default
        (86_400, 30.0),
    ],
)
def test_a_posting_is_read_sixty_times_in_its_challenge_window(
    challenge_seconds: int, pause_seconds: float
) -> None:
    assert watching_pause_seconds(challenge_seconds, 1.0) == pause_seconds


@pytest.mark.parametrize(("grace_seconds", "pause_seconds"), [(2.0, 0.5), (6.0, 0.5), (30.0, 1.875)])
def test_an_auditor_reads_the_chain_sixteen_times_in_the_grace_period(
    grace_seconds: float, pause_seconds: float
) -> None:
    assert settling_pause_seconds(grace_seconds, 0.5) == pause_seconds


@pytest.mark.parametrize(
    ("due_seconds", "pause_seconds"),
    [(math.inf, 30.0), (130.0, 30.0), (112.0, 12.0), (100.5, 1.0), (100.0, 1.0), (50.0, 1.0)],
)
def test_pauses_end_when_an_action_is_due(due_seconds: float, pause_seconds: float) -> None:
    assert watching_pause_seconds(3600, 1.0, due_seconds - 100.0) == pause_seconds
