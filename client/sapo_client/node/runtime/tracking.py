"""Export of every step's figures to the tracker of the setting ``observe.tracker``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import trio

from sapo_client import extras
from sapo_client.errors import ExitCode

if TYPE_CHECKING:
    from sapo_client.config import ObserveConfig
    from sapo_client.paths import DataDir

WAITING: Final = 1024
"""Steps that may wait for the tracker; further ones are dropped, so that training never waits."""

_PATIENCE_SECONDS: Final = 20.0
"""Longest time at the end for the tracker to write the waiting steps."""

FIGURES: Final = (
    "reward", "batch_reward", "loss", "gradient_norm", "external_weight", "pool", "pool_accounts", "peers",
    "seconds",
)  # fmt: skip
"""Numeric fields of a step's event; see `docs/reference/metrics.md` for other measurements."""


class TrackerEnded(Exception):
    """The tracker's process ended by itself."""


class Tracking:
    """Sends figures to the tracker's process; does nothing if none is configured.

    Args:
        run: name of the run, unchanged after a restart.

    Raises:
        SapoError: the tracker is not installed.
    """

    def __init__(self, config: ObserveConfig, data: DataDir, *, run: str) -> None:
        self._config = config
        self._data = data
        self._run = run
        self._send, self._receive = trio.open_memory_channel[bytes](WAITING)
        self.missed = 0
        if config.tracker != "none":
            extra = extras.TRACKIO if config.tracker == "trackio" else extras.TENSORBOARD
            extras.require(extra, instead='observe.tracker = "none"', exit_code=ExitCode.CONFIG)

    @property
    def waiting(self) -> int:
        """Number of steps that wait for the tracker's process."""
        return self._send.statistics().current_buffer_used

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node; a step's figures are queued for the tracker."""
        if event != "step" or self._config.tracker == "none":
            return
        step = fields["step"]
        figures = {name: fields[name] for name in FIGURES} | _counts(fields)
        try:
            self._send.send_nowait(json.dumps({"step": step, "figures": figures}).encode() + b"\n")
        except trio.WouldBlock:
            self.missed += 1

    async def run(self) -> None:
        """Run the tracker's process and send it figures until cancelled.

        Raises:
            TrackerEnded: the process ended by itself; its log says why.
        """
        if self._config.tracker == "none":
            return
        log = self._data.log.with_name("tracker.log")
        with log.open("ab") as stream:
            process = await trio.lowlevel.open_process(
                self._command(), stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.STDOUT
            )
        assert process.stdin is not None
        try:
            async for line in self._receive.clone():
                await process.stdin.send_all(line)
        except trio.BrokenResourceError as error:
            code = await process.wait()
            raise TrackerEnded(f"the tracker ended with code {code}; its log: {log}") from error
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _PATIENCE_SECONDS):
                await process.stdin.aclose()
                await process.wait()
            if process.returncode is None:
                process.kill()

    def _command(self) -> list[str]:
        options = {
            "--project": self._config.tracker_project,
            "--run": self._run,
            "--folder": str(self._data.root / "tensorboard"),
        }
        flat = [word for pair in options.items() for word in pair]
        return [sys.executable, "-m", "sapo_client.observe.tracker", self._config.tracker, *flat]


def _counts(fields: Mapping[str, object]) -> dict[str, int]:
    """Return how many own and external groups a step used."""
    local, external = fields["local"], fields["external"]
    assert isinstance(local, list)
    assert isinstance(external, list)
    return {"own_groups": len(local), "external_groups": len(external)}
