"""The service manager's watchdog while a learner loads: at a start, and when a node is opened again."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
import trio
from support.health_trial import Begin
from support.nodes import manifest_of, until
from trio.testing import MockClock

from sapo_protocol.suite import Suite


def said(manager: socket.socket, told: list[str]) -> bool:
    """Add the next message to the service manager, if there is one."""
    try:
        told.append(manager.recv(4096).decode())
    except BlockingIOError:
        return False
    return True


async def test_a_model_that_loads_for_long_is_not_ended(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is opened again, as for other terms, has said long ago that it is ready."""
    trial, address = begin(manifest_of(weekdays, epoch_seconds=36_000)), tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        mock_clock.rate = 1.0
        async with trio.open_nursery() as nursery:
            node = trial.home.node(trial.hub, clock=trial.now, steady=mock_clock.current_time)
            nursery.start_soon(node.run)
            await until(trial.home.has_learner)
            trial.home.signal_learner(signal.SIGSTOP)
            told: list[str] = []
            while len(told) < 3:
                trial.pass_by(10)
                await until(lambda: said(manager, told), 20)
            assert not trial.home.data.control_address.exists()
            trial.home.signal_learner(signal.SIGCONT)
            await until(trial.home.data.control_address.exists)
            await trial.stop()
    status = "STATUS=the learner loads its model: the node takes part once that is done"
    assert told == [f"{status}\nEXTEND_TIMEOUT_USEC=900000000\nWATCHDOG=1"] * 3
