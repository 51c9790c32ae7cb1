"""The state file of a testnet, and stopping the processes that it names."""

import sys
from pathlib import Path

import pytest

from sapo_client.errors import SapoError
from sapo_client.testnet import state
from sapo_client.testnet.plan import Layout
from sapo_client.testnet.processes import ChildProcess, spawn

FOREVER = "import time\nwhile True: time.sleep(60)"


def child(layout: Layout, name: str) -> ChildProcess:
    argv = (sys.executable, "-c", FOREVER)
    return spawn(name, argv, folder=layout.root, log=layout.root / f"{name}.txt")


def test_the_state_is_read_back_and_its_processes_are_ended(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    chain, node = child(layout, "chain"), child(layout, "ada")
    kept = state.TestnetState(
        "http://127.0.0.1:1", (state.entry_of(chain, "chain"), state.entry_of(node, "node"))
    )
    state.keep(layout, kept)
    assert state.read(layout) == kept
    assert [entry.runs for entry in kept.entries] == [True, True]
    assert state.end(layout, kept) == ["ada", "chain"]
    assert [entry.runs for entry in kept.entries] == [False, False]
    assert state.end(layout, kept) == []
    for one in (chain, node):
        one.process.wait()


def test_a_reused_pid_is_not_signalled(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one = child(layout, "ada")
    stale = state.ProcessEntry("ada", "node", one.pid, "1", one.argv, str(one.log))
    try:
        assert state.end(layout, state.TestnetState("http://127.0.0.1:1", (stale,))) == []
        assert one.exit_code() is None
    finally:
        one.process.kill()
        one.process.wait()


def test_a_folder_without_a_testnet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="holds no testnet"):
        state.read(Layout(tmp_path))
