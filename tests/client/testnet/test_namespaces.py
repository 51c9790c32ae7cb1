"""Six real nodes in network namespaces: losses, routers, a partition, a dead boot node, new addresses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from support.namespaces import kernel
from support.namespaces.deliveries import first_heard, read_record
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.report import refusals

from sapo_client.testnet.processes import wait_until
from sapo_protocol.errors import Reason, Verdict
from sapo_verification.reputation.penalties import verdict

_REASON = kernel.why_not()

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(_REASON is not None, reason=f"real nodes in network namespaces: {_REASON}"),
]

EVERYBODY = tuple(range(6))
PATIENCE_SECONDS = 900.0
"""A hang is a failure; a machine that is busy with other things is none."""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))


def test_nodes_hear_each_other_again_whatever_happens_between_them(tmp_path: Path) -> None:
    with swarm(
        tmp_path / "net", Terms(nodes=len(EVERYBODY), behind_routers=1 / 3, group_seconds=3.0)
    ) as nodes:
        start_all(nodes)
        nodes.world.lose(0.01)
        _wait_until_heard(nodes, EVERYBODY)
        nodes.world.lose(0.0)

        begin = nodes.world.cut()
        sides = [[each for each in EVERYBODY if nodes.world.sites[each].side == side] for side in (0, 1)]
        for side in sides:
            _wait_until_heard(nodes, side)
        assert _heard(nodes, EVERYBODY, begin) == {*permutations(sides[0], 2), *permutations(sides[1], 2)}
        nodes.world.heal()
        _wait_until_heard(nodes, EVERYBODY)

        nodes.kill(0)
        for kind in (False, True):
            nodes.world.move(
                next(each for each in EVERYBODY[1:] if nodes.world.sites[each].behind_router is kind)
            )
        _wait_until_heard(nodes, EVERYBODY[1:])
        nodes.start(0)
        _wait_until_heard(nodes, EVERYBODY)
        assert nodes.lowest_score() == 0.0
        records = {number: read_record(place.data.events) for number, place in enumerate(nodes.places)}
        blamed = {each for each in refusals(records) if verdict(Reason(each)) is Verdict.REJECT}
        assert blamed == set()  # what came before its author's certificate, or late, is held against nobody
    assert kernel.existing() == []


def _wait_until_heard(nodes: Nodes, numbers: Sequence[int]) -> None:
    """Return once each of some nodes has heard a group that each other published after now."""
    begin, due = time.time(), set(permutations(numbers, 2))
    nodes.require_running()
    wait_until(lambda: _heard(nodes, numbers, begin) == due, PATIENCE_SECONDS)
    nodes.require_running()
    assert _heard(nodes, numbers, begin) == due


def _heard(nodes: Nodes, numbers: Sequence[int], begin: float) -> set[tuple[int, int]]:
    """Return the pairs of author and hearer of which the second heard a group published since a time."""
    records = {number: read_record(nodes.places[number].data.events) for number in numbers}
    return {pair for pair, seconds in first_heard(begin, numbers, records).items() if seconds is not None}
