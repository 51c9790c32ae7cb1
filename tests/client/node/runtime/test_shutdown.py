"""Signals to a node: draining, immediate exit, and a closed terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.sapo_process import TIMEOUT_SECONDS

WATCHING = """
import signal, sys, trio
from sapo_client.node.runtime.shutdown import Shutdown

async def main():
    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shutdown.watch_signals)
        await trio.testing.wait_all_tasks_blocked()
        print("ready", flush=True)
        await shutdown.draining.wait()
        print(shutdown.why, shutdown.exit_code, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)  # the last round takes as long as the test wants
        nursery.cancel_scope.cancel()
    print("drained", flush=True)

import trio.testing
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))  # as its shell starts it
trio.run(main)
"""

REOPENING = """
import sys, trio, trio.testing
from sapo_client.node.runtime.shutdown import Shutdown

async def main():
    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shutdown.watch_signals)
        shutdown.has_started = True
        shutdown.reopen("the swarm's terms change")
        await trio.testing.wait_all_tasks_blocked()
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)  # the last round takes as long as the test wants
        nursery.cancel_scope.cancel()
    print(shutdown.why, shutdown.exit_code, shutdown.reopens, flush=True)

trio.run(main)
"""


@contextmanager
def watching(before: str = "SIG_DFL", script: str = WATCHING) -> Iterator[subprocess.Popen[str]]:
    """Run a process that watches for signals as a node does; ``before``: what SIGHUP did to it."""
    command = [sys.executable, "-c", script, before]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def drained(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Let a process finish; return what it printed, and its exit code."""
    printed, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    return printed, process.returncode


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_the_first_signal_drains(number: signal.Signals, code: int) -> None:
    with watching() as process:
        process.send_signal(number)
        assert drained(process) == (f"{number.name} {code}\ndrained\n", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_one_ends_the_process(number: signal.Signals, code: int) -> None:
    with watching() as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM 143\n"
        process.send_signal(number)
        assert process.wait(TIMEOUT_SECONDS) == code


def test_a_closed_terminal_that_hangs_up_twice_drains_all_the_same() -> None:
    """The shell hangs up its jobs, and the kernel the terminal's foreground processes."""
    with watching() as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "SIGHUP 143\n"
        process.send_signal(signal.SIGHUP)
        assert drained(process) == ("drained\n", 0)


def test_under_nohup_a_hangup_is_ignored() -> None:
    with watching("SIG_IGN") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        assert drained(process) == ("SIGINT 130\ndrained\n", 0)


def test_a_node_that_is_about_to_be_opened_again_drains_at_the_first_signal_and_ends() -> None:
    with watching(script=REOPENING) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == "stopping after this round; once more to stop at once\n"
        assert drained(process) == ("SIGTERM 143 False\n", 0)
    with watching(script=REOPENING) as process:
        assert drained(process) == ("the swarm's terms change 0 True\n", 0)
