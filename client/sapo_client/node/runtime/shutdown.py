"""Stop in two stages (the first signal drains and saves a checkpoint, the second ends the process); pause."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import trio

from sapo_client.errors import ExitCode
from sapo_client.observe.starting import LOOK_SECONDS, STOPPED_BEFORE_START
from sapo_client.observe.terminal import say

_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.TERMINATED,
}


class Pause:
    """Whether the operator has paused training; all other services continue."""

    def __init__(self) -> None:
        self._over: trio.Event | None = None

    @property
    def holds(self) -> bool:
        """Whether training is paused."""
        return self._over is not None

    def set(self, paused: bool) -> None:
        """Pause before the next round, or resume."""
        if paused and self._over is None:
            self._over = trio.Event()
        elif not paused and self._over is not None:
            self._over.set()
            self._over = None

    async def wait_until_over(self, draining: trio.Event) -> None:
        """Return when training is not paused, or when the node drains."""
        while self._over is not None and not draining.is_set():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, draining, nursery.cancel_scope)
                await self._over.wait()
                nursery.cancel_scope.cancel()


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Shutdown:
    """State of a requested stop, with its reason and exit code.

    Attributes:
        reopens: whether the node stops only to be opened again.
        has_started: whether the slow parts of the node have started; a stop before that ends their start.
    """

    def __init__(self) -> None:
        self.draining = trio.Event()
        self.hurried = trio.Event()
        self.exit_code = int(ExitCode.DONE)
        self.why = "all steps done"
        self.reopens = False
        self.has_started = False

    def request(self, why: str, exit_code: int, *, finish: bool = True) -> None:
        """Request a stop after the current round, or at once unless ``finish``; the first reason counts."""
        if self.reopens or not self.draining.is_set():
            self.reopens = False
            self.why, self.exit_code = why, exit_code
            self.draining.set()
        if not finish:
            self.hurried.set()

    def reopen(self, why: str) -> None:
        """Request a stop after the current round, to be opened again unless the node is asked to end."""
        if not self.draining.is_set():
            self.request(why, ExitCode.DONE)
            self.reopens = True

    async def heed_requests(self, is_requested: Callable[[], bool]) -> None:
        """Stop a node that is asked to before it has started, and has no control API yet."""
        while not is_requested():
            await trio.sleep(LOOK_SECONDS)
        say(STOPPED_BEFORE_START)
        self.request("sapo stop", ExitCode.DONE)

    async def watch_signals(self) -> None:
        """Drain at the first SIGINT, SIGTERM or SIGHUP; end the process at the second, unless it is a SIGHUP.

        A closed terminal may send SIGHUP twice (from the shell and the kernel), which is not a wish to end at
        once. If SIGHUP is ignored at the start, as under `nohup`, it stays ignored. Only the main thread
        receives signals: a node in another thread is stopped by its program.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        heeded = [number for number in _CODES if not _is_ignored_hangup(number)]
        with trio.open_signal_receiver(*heeded) as signals:
            async for number in signals:
                code = int(_CODES[signal.Signals(number)])
                if self.draining.is_set() and not self.reopens:
                    if number == signal.SIGHUP:
                        continue
                    os._exit(code)
                what = "after this round" if self.has_started else "before the start"
                print(f"stopping {what}; once more to stop at once", file=sys.stderr)
                self.request(signal.Signals(number).name, code)


def _is_ignored_hangup(number: signal.Signals) -> bool:
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
