"""Report of `sapo doctor` about a node that runs on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from sapo_client.cli.checks import Check
from sapo_client.cli.checks_network import check_running
from sapo_client.observe import control
from sapo_client.observe.findings import ISLANDS_HINT, UNREACHABLE_HINT
from sapo_client.observe.reports import IslandsReport, RouterReport, StatusReport
from sapo_client.paths import DataDir

STATUS = StatusReport(
    state="running",
    updated="2026-01-01T00:00:00+00:00",
    version="0.1.0",
    swarm_name="pond",
    swarm_id="00" * 32,
    node_id="11" * 32,
    peer_id="12D3KooWA",
    account="0x" + "22" * 20,
    model="bundled",
    device="cpu",
    uptime_seconds=9.5,
    epoch=3,
    round=2,
    step=12,
    pool=7,
    peers=2,
    shared=8,
    accepted=24,
    sampled_own=8,
    sampled_external=6,
    refused={},
)


async def told(data: DataDir, **changes: object) -> list[Check]:
    """Return the checks of a node that reports this status."""
    status = STATUS.model_copy(update=changes)
    handlers = control.Handlers(
        reports={"status": partial(status.model_dump, mode="json")},
        is_draining=lambda: False,
        stop=lambda _now: None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, data, handlers)
        found = await trio.to_thread.run_sync(lambda: list(check_running(data)))
        nursery.cancel_scope.cancel()
    return found


async def test_a_reachable_node_of_an_undivided_swarm(tmp_path: Path) -> None:
    mapped = RouterReport(state="mapped", host="192.168.1.1", port=4001)
    assert await told(DataDir(tmp_path), reachable="reachable", router=mapped) == [
        Check("reachable", "ok", "peers can connect to this node through the router's port 4001 (UPnP)")
    ]


async def test_an_unreachable_node_with_an_unknown_number_of_islands(
    tmp_path: Path,
) -> None:
    checks = await told(
        DataDir(tmp_path),
        reachable="unreachable",
        router=RouterReport(state="silent"),
        islands=IslandsReport(count=2, is_known=False, carried=(0, 1)),
    )
    opens = "peers cannot connect to this node; it works through the connections that it opens"
    assert checks == [
        Check("reachable", "warn", f"{opens}; no router answered (UPnP)", UNREACHABLE_HINT),
        Check(
            "islands",
            "warn",
            "2; this node is subscribed to 0, 1 (as last known: this epoch's number is not)",
            ISLANDS_HINT,
        ),
    ]


async def test_a_known_number_of_islands(tmp_path: Path) -> None:
    islands = IslandsReport(count=2, is_known=True, next_count=2, carried=(0,))
    [_, check] = await told(DataDir(tmp_path), islands=islands)
    assert check == Check("islands", "ok", "2; this node is subscribed to 0")


def test_without_a_running_node_there_are_no_checks(tmp_path: Path) -> None:
    assert list(check_running(DataDir(tmp_path))) == []
