"""Stop in two stages: the first signal drains and saves a checkpoint, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys

import trio

from sapo_client.errors import ExitCode

_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Shutdown:
    """State of a requested stop, with its reason and exit code."""

    def __init__(self) -> None:
        self.draining = trio.Event()
        self.hurried = trio.Event()
        self.exit_code = int(ExitCode.DONE)
        self.why = "all steps done"

    def request(self, why: str, exit_code: int, *, finish: bool = True) -> None:
        """Request a stop after the current round, or at once unless ``finish``; the first reason counts."""
        if not self.draining.is_set():
            self.why, self.exit_code = why, exit_code
            self.draining.set()
        if not finish:
            self.hurried.set()

    async def watch_signals(self) -> None:
        """Drain at the first SIGINT or SIGTERM, and end the process at the second."""
        with trio.open_signal_receiver(*_CODES) as signals:
            async for number in signals:
                code = int(_CODES[signal.Signals(number)])
                if self.draining.is_set():
                    os._exit(code)
                print("stopping after this round; once more to stop at once", file=sys.stderr)
                self.request(signal.Signals(number).name, code)
