"""A whole node with an adjustable clock, and all outlets of its health."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from support.nodes import LOOK_SECONDS, PATIENCE_SECONDS, Home, until
from trio.testing import MockClock
from typer.testing import CliRunner, Result

from sapo_client.cli.app import app
from sapo_client.config import Config
from sapo_client.node.app import NodeApp
from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import last_events
from sapo_client.observe.health import INTERVAL_SECONDS
from sapo_client.paths import DataDir
from sapo_client.swarm.simulated.memory import MemoryHub

MAX_READINGS: Final = 20
SOON_SECONDS: Final = 0.3
PAGE: Final = Path(__file__).parents[2] / "docs/reference/health.md"

_FIGURES: Final = (
    (re.compile(r"/[^ ,:;()]*/(?=data|learner|checkpoints|logs)"), "DIR/"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:PORT"),
    (re.compile(r"0x[0-9a-fA-F]{40}"), "0xACCOUNT"),
    (re.compile(r"step-\d+(?:, step-\d+)*"), "step-N"),
    (re.compile(r", \d+ times in the last hour"), ""),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|min|h)\b"), "N s"),
    (re.compile(r"\b(call|during|answer) (?:train|generate|evaluate|keep_good)\b"), r"\1 CALL"),
    (re.compile(r"\d+(?:\.\d+)?(?= (?:s|min|h|MiB|%)\b|%)"), "N"),
    (re.compile(r"\b\d+(?:\.\d+)?\b(?!\.\d)"), "N"),
)


def without_figures(text: str) -> str:
    """Return a sentence with its figures, paths and addresses replaced by names."""
    kept = text.replace("127.0.0.1", "LOOPBACK")
    for pattern, name in _FIGURES:
        kept = pattern.sub(name, kept)
    return kept.replace("LOOPBACK:N", "LOOPBACK:PORT").replace("LOOPBACK", "127.0.0.1")


class HealthHome(Home):
    """A home with changes of the configuration."""

    changes: Mapping[str, Mapping[str, Any]] = {}

    @property
    def config(self) -> Config:
        config = super().config
        return config.model_copy(
            update={
                name: getattr(config, name).model_copy(update=dict(fields))
                for name, fields in self.changes.items()
            }
        )


def require_row(row: str) -> None:
    """Assert that the page on health has a row; with ``SAPO_WRITE_HEALTH`` set, write it there first."""
    text = PAGE.read_text(encoding="utf-8")
    head, mark, table = text.partition("| --- | --- | --- | --- |\n")
    rows = table.splitlines()
    if os.environ.get("SAPO_WRITE_HEALTH"):
        rows = sorted({row, *rows})
        PAGE.write_text(head + mark + "\n".join(rows) + "\n", encoding="utf-8")
    assert row in rows, f"{PAGE.name} lacks this row: {row}"


FAILURES: Final = "## Six failures, told alike"


def require_failure(failure: str, told: Told) -> None:
    """Assert that the page's table of failures has a row; with ``SAPO_WRITE_HEALTH`` set, write it there."""
    level, code = ("2", "7") if told.level == "error" else ("1", "0")
    row = f"| {failure} | {told.text} (`{told.code}`) | {level} | {code} |"
    text = PAGE.read_text(encoding="utf-8")
    head, title, rest = text.partition(FAILURES)
    above, mark, below = rest.partition("| --- | --- | :-: | :-: |\n")
    table, blank, after = below.partition("\n\n")
    rows = table.splitlines()
    if os.environ.get("SAPO_WRITE_HEALTH"):
        others = [each for each in rows if not each.startswith(f"| {failure} |")]
        rows = sorted([*others, row])
        PAGE.write_text(head + title + above + mark + "\n".join(rows) + blank + after, encoding="utf-8")
    assert row in rows, f"{PAGE.name} lacks this row: {row}"


@dataclass(frozen=True)
class Told:
    """A finding as every outlet reports it, at one time."""

    code: str
    level: str
    text: str
    hint: str
    everywhere: Mapping[str, bool]

    def row(self) -> str:
        """Return the finding as a row of the table in the documentation."""
        return f"| `{self.code}` | {self.level} | {self.text} | {self.hint} |"


@dataclass
class HealthTrial:
    """A node that runs on a mock clock, and its outlets.

    The clock runs at the usual rate, so that processes and sockets have their time; ``pass_by`` turns it on
    at once, which the node takes for a halt of its process, ``run_for`` while the node runs. It stands still
    while the outlets are read.
    """

    home: HealthHome
    hub: MemoryHub
    clock: MockClock
    capsys: pytest.CaptureFixture[str]
    wall_base: float
    skew: float = 0.0
    suspended: float = 0.0
    terminal: str = ""

    def now(self) -> float:
        """The node's wall clock."""
        return self.wall_base + self.steady() + self.skew

    def steady(self) -> float:
        """A clock that nobody sets and that goes on while the machine sleeps."""
        return self.clock.current_time() + self.suspended

    async def start(self, nursery: trio.Nursery, *, rate: float = 1.0, **options: Any) -> NodeApp:
        """Start the node; return once its control API answers.

        Args:
            rate: of the mock clock; a small one lets a busy machine start the node in few of its seconds.
        """
        assert trio.lowlevel.current_clock() is self.clock
        self.clock.rate = rate
        node = self.home.node(self.hub, clock=self.now, steady=self.steady, **options)
        nursery.start_soon(node.run)
        await until(self.home.data.control_address.exists)
        return node

    async def stop(self) -> None:
        """Stop the node and wait for its end."""
        await self.home.stop()
        await until(lambda: not self.home.data.control_address.exists())

    async def stop_learner(self) -> None:
        """Stop the learner's process; a call waits for it when this returns."""
        self.home.signal_learner(signal.SIGSTOP)
        await trio.sleep(2)  # of the mock clock, which runs

    def pass_by(self, seconds: float) -> None:
        """Let time pass for the whole node."""
        self.clock.jump(seconds)

    async def run_for(self, seconds: float) -> None:
        """Let time pass in which the node runs: at each interval timers wake it up, and it is assessed."""
        self.clock.rate = 0.0
        for _ in range(ceil(seconds / INTERVAL_SECONDS)):
            self.pass_by(INTERVAL_SECONDS)
            await trio.lowlevel.checkpoint()  # what sleeps is awake after this
            await trio.lowlevel.checkpoint()  # and has gone on after this
        self.clock.rate = 1.0

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: timers stand still, as those of the monotonic clock do, and time passes."""
        self.suspended += seconds

    async def rounds(self, count: int) -> None:
        """Wait for more rounds."""
        before = (await self.home.get("status"))["round"]
        await self.until_status(lambda status: status["round"] >= before + count)

    async def until_status(self, holds: Callable[[Any], bool]) -> None:
        """Wait until a condition holds for the node's status."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not holds(await self.home.get("status")):
                await trio.sleep(LOOK_SECONDS)

    async def _until_assessed(self, holds: Callable[[Any], bool]) -> None:
        """Wait until a condition holds for the findings, whose next assessments come at once.

        Two intervals are passed by: what is assessed may itself be read at the end of the first.
        """
        for _ in range(2):
            if holds(await self.home.get("status")):
                return
            await trio.sleep(SOON_SECONDS)
            self.pass_by(INTERVAL_SECONDS)
        await self.until_status(holds)

    async def codes(self) -> list[str]:
        """Return the codes of the current findings."""
        return _codes(await self.home.get("status"))

    async def until_told(self, code: str) -> Told:
        """Wait for a finding; return what all outlets tell at that moment."""
        await self._until_assessed(lambda status: code in _codes(status))
        self.clock.rate = 0.0
        try:
            for _ in range(MAX_READINGS):
                if (told := await self._read(code)) is not None:
                    return told
            pytest.fail(f"commands print errors, or findings change, in every reading: {self.terminal}")
        finally:
            self.clock.rate = 1.0

    async def until_over(self, code: str) -> None:
        """Wait until a finding is over, and until the terminal says so in a line of its own."""
        await self._until_assessed(lambda status: code not in _codes(status))
        with trio.fail_after(PATIENCE_SECONDS):
            while not self._has_ended(code):
                await trio.sleep(LOOK_SECONDS)

    def _has_ended(self, code: str) -> bool:
        """Whether the terminal's last line about a finding is that it is over."""
        self.terminal += self.capsys.readouterr().err
        lines = [line for line in self.terminal.splitlines() if f"({code})" in line]
        return bool(lines) and "over: " in lines[-1]

    async def _read(self, code: str) -> Told | None:
        """Return what all outlets tell; None if an answer of the chain came in between, or the node spoke."""
        status = await self.home.get("status")
        [finding] = [each for each in status["findings"] if each["code"] == code]
        client = ControlClient(self.home.data)
        page: Any = await trio.to_thread.run_sync(partial(_page_status, self.home.data))
        health = await trio.to_thread.run_sync(client.health)
        metrics = await trio.to_thread.run_sync(client.get_text, "metrics")
        healthy = await self._sapo("status", "--healthy")
        document = await self._sapo("status", "--json")
        shown = await self._sapo("status")
        # the node is in this process, so that what it says meanwhile is taken for the commands'
        self.terminal += self.capsys.readouterr().err + document.stderr + shown.stderr
        changed = (await self.home.get("status"))["findings"] != status["findings"]
        if changed or document.stderr or shown.stderr:
            return None
        line = f"{finding['level']}: {finding['text']} ({code}); {finding['hint']}"
        level = {"warning": 1.0, "error": 2.0}[finding["level"]]
        told = {
            "terminal": without_figures(line) in without_figures(self.terminal),
            "`sapo status`": line.partition(": ")[2] in shown.stdout,
            "`sapo status --json`": finding in json.loads(document.stdout)["findings"],
            "`sapo status --healthy`": line in healthy.stdout.splitlines(),
            "`GET /health`": finding in json.loads(health.model_dump_json())["findings"],
            "the page": finding in page["findings"],
            "metric": _samples(metrics)["sapo_health_finding", code] == level,
            "event": any(finding["code"] == each["code"] for each in self._last_event()),
        }
        errors = any(each["level"] == "error" for each in status["findings"])
        assert (healthy.exit_code, health.healthy) == (7 if errors else 0, not errors)
        assert page["healthy"] == (not errors)
        assert _samples(metrics)["sapo_healthy", ""] == (0.0 if errors else 1.0)
        return Told(
            code=code,
            level=finding["level"],
            text=without_figures(finding["text"]),
            hint=without_figures(finding["hint"]),
            everywhere=told,
        )

    def _last_event(self) -> list[Any]:
        [event] = last_events(self.home.data.events, "health", 1)
        findings = event["findings"]
        assert isinstance(findings, list)
        return findings

    async def _sapo(self, *arguments: str) -> Result:
        """Return the outcome of a command, run in this process: its node stands still meanwhile."""
        command = [*arguments, "--data-dir", str(self.home.data.root)]
        return await trio.to_thread.run_sync(partial(CliRunner().invoke, app, command))


def _page_status(data: DataDir) -> object:
    """Return what the page's own script asks for to show the health."""
    address = f"http://{data.control_address.read_text().strip()}"
    root = urlsplit(ControlClient(data).page_link()).path.rpartition("/")[0]
    bearer = {"Authorization": f"Bearer {data.control_token.read_text().strip()}"}
    answer = httpx.get(f"{address}{root}/api/self/status", headers=bearer, timeout=PATIENCE_SECONDS)
    return answer.raise_for_status().json()


def _codes(status: Any) -> list[str]:
    return [each["code"] for each in status["findings"]]


def _samples(metrics: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }


Begin = Callable[..., HealthTrial]
"""Makes a node of a swarm, not running yet, with other settings by section."""
