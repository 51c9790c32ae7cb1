"""A testnet whose chain dies: the reason is reported, and the logs are kept with the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import children_of
from support.sapo_process import SAPO

from sapo_client.ledger.chain import ENDPOINT_FILE
from sapo_client.testnet.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def trains(state: Path) -> bool:
    """Return whether a node of a testnet has ended a round."""
    if not state.exists():
        return False
    nodes = [each for each in json.loads(state.read_text())["processes"] if each["role"] == "node"]
    return any("round 1 " in Path(node["log"]).read_text() for node in nodes)


@contextmanager
def running_testnet(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a testnet whose data is in ``net`` and whose report is in ``report``; kill it in the end."""
    arguments = ["testnet", "up", "--nodes", "2", "--attackers", "0", "--epochs", "3", "--no-progress"]
    process = subprocess.Popen(
        [SAPO, *arguments, "--data-dir", str(folder / "net"), "--report", str(folder / "report")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(folder), "SAPO_LOCKS_DIR": str(folder / "locks")},
    )
    try:
        yield process
    finally:
        process.kill()


def test_a_dead_chain_is_reported_with_the_logs(tmp_path: Path) -> None:
    state, report = tmp_path / "net" / "testnet.json", tmp_path / "report"
    with running_testnet(tmp_path) as process:
        assert wait_until(lambda: trains(state), 400.0)
        [chain] = [each for each in json.loads(state.read_text())["processes"] if each["role"] == "chain"]
        os.kill(chain["pid"], signal.SIGKILL)
        _, told = process.communicate(timeout=300)
    assert process.returncode == 6, told
    assert "the chain died: it exited with code -9" in told
    assert f"the logs of all processes are in {report / 'logs'}" in told.replace("\n", "")
    assert "sapo join 'sapo://" in told
    names = {log.name for log in (report / "logs").iterdir()}
    assert names == {"chain.txt", "invitation.txt", "ada.txt", "bo.txt"}


def chain_of(parent: int) -> int | None:
    """Return the process id of the chain that a testnet has started, if it has."""
    for child in children_of(parent):
        if "sapo_client.ledger.chain" in Path(f"/proc/{child}/cmdline").read_text():
            return child
    return None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the chain in /proc")
def test_a_chain_that_dies_during_the_start_is_reported_as_such(tmp_path: Path) -> None:
    """Who asks it then gets no answer, and would only say that."""
    with running_testnet(tmp_path) as process:
        endpoint = tmp_path / "net" / "chain" / ENDPOINT_FILE
        assert wait_until(endpoint.exists, 400.0)
        chain = chain_of(process.pid)
        assert chain is not None
        os.kill(chain, signal.SIGKILL)
        _, told = process.communicate(timeout=300)
    assert process.returncode == 6, told
    assert "the chain died: it exited with code -9" in told
    assert "chain.txt" in {log.name for log in (tmp_path / "report" / "logs").iterdir()}
