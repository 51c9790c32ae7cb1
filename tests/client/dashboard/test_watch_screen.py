"""`sapo watch` at 60 columns, driven by textual's pilot on a node that trains and is sent hostile text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sapo_client.dashboard.client import PageClient
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir
from sapo_protocol.rules import Rule

pytest.importorskip("textual")

from textual.widgets import DataTable, Static

from sapo_client.cli.live import formatting
from sapo_client.cli.live.screen import ROLLOUT_COLUMNS, TABS, WatchApp

WIDTH = 60


class Interrupted:
    """The views of a node, and of the same node while it does not answer."""

    def __init__(self, data: DataDir) -> None:
        self._client = PageClient(data)
        self.is_down = False

    def view(self, name: str) -> Any:
        if self.is_down:
            raise SapoError("no node is running", hint="start one", exit_code=ExitCode.NETWORK)
        return self._client.view(name)


def text_of(app: WatchApp, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).render())


def test_every_tab_is_readable_at_sixty_columns(page_node: DataDir) -> None:
    asyncio.run(_tabs(Interrupted(page_node)))


async def _tabs(node: Interrupted) -> None:
    app = WatchApp(node.view)
    async with app.run_test(size=(WIDTH, 40)) as pilot:
        await _settle(app, pilot)
        assert "  test swarm  node " in text_of(app, "head")
        assert len(text_of(app, "head")) <= WIDTH - 2
        overview = text_of(app, "figures").splitlines()
        assert [line.split()[0] for line in overview[:7]] == [
            "reward", "held", "round", "peers", "rollouts", "refused", "ledger",
        ]  # fmt: skip
        assert max(map(len, overview)) <= WIDTH - 2
        assert any(line.startswith("own answers") and "±" in line and "n=" in line for line in overview)
        for number, tab in enumerate(TABS, 1):
            await pilot.press(str(number))
            await _settle(app, pilot)
            assert app.query_one("TabbedContent").active == tab  # type: ignore[attr-defined]
        rows = app.query_one("#list", DataTable)
        assert rows.row_count == 100
        widths = sum(column.get_render_width(rows) for column in rows.columns.values())
        assert widths <= WIDTH
        await pilot.press("2")
        rows.focus()
        await pilot.press("enter")
        await _settle(app, pilot)
        shown = text_of(app, "text")
        assert "prompt" in shown
        assert shown.count(" ok   ") >= 8


def test_the_longest_row_of_a_rollout_fits() -> None:
    long = {"content_id": "a" * 64, "own": False, "account": "0x" + "b" * 40, "family": "calendar_arithmetic"}
    view = {"rollouts": [{**long, "reward": 0.125, "state": f"refused: {rule.reason}"} for rule in Rule]}
    for row in formatting.rollout_rows(view):
        fields = zip(row, ROLLOUT_COLUMNS, strict=True)
        assert sum(max(len(text), len(title)) + 2 for text, title in fields) <= WIDTH, row
        assert row[-1].startswith("✗ ")


def test_a_node_that_trains_alone_shares_nothing(page_node: DataDir) -> None:
    status = PageClient(page_node).view("status")
    assert isinstance(status, dict)
    figures = dict(formatting.figures({**status, "alone": True, "shared": 24}))
    assert (figures["peers"], figures["rollouts"]) == ("none: this node trains alone", "24 made, none shared")


def test_untrusted_text_moves_no_cursor() -> None:
    hostile = "\x1b[2J\x9b1A\r\u202etext\n2"
    view = {
        **{"content_id": "ab", "own": False, "account": "0x01", "epoch": 0, "slot": 0, "state": "verified"},
        **{"uses": [], "prompt": "1 + 1", "stages": [], "answers": [{"text": hostile, "reward": None}]},
    }
    assert formatting.rollout_lines(view)[-2:] == ["\ufffd[2J\ufffd1A\ufffd\ufffdtext\n2", ""]


def test_a_node_that_stops_is_reported_with_its_hint(page_node: DataDir) -> None:
    asyncio.run(_down(Interrupted(page_node)))


async def _down(node: Interrupted) -> None:
    app = WatchApp(node.view)
    async with app.run_test(size=(WIDTH, 30)) as pilot:
        await _settle(app, pilot)
        node.is_down = True
        app.refresh_views()
        await _settle(app, pilot)
        assert text_of(app, "head") == "not connected"
        assert text_of(app, "health") == "no node is running\n  start one"
        node.is_down = False
        app.refresh_views()
        await _settle(app, pilot)
        assert "test swarm" in text_of(app, "head")
        await pilot.press("q")
    assert app.return_code == 0


async def _settle(app: WatchApp, pilot: Any) -> None:
    """Wait until the node was asked and its answer is shown."""
    await pilot.pause()
    while any(not worker.is_finished for worker in app.workers):
        await pilot.pause(0.05)
    await pilot.pause()
