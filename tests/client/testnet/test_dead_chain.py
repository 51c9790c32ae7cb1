"""A testnet whose chain dies: the reason is told, and the logs are kept beside the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.sapo_process import SAPO

from sapo_client.testnet.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def trains(state: Path) -> bool:
    """Return whether a node of a testnet has ended a round."""
    if not state.exists():
        return False
    nodes = [each for each in json.loads(state.read_text())["processes"] if each["role"] == "node"]
    return any("round 1 " in Path(node["log"]).read_text() for node in nodes)


def test_a_dead_chain_is_told_with_the_logs(tmp_path: Path) -> None:
    net, report = tmp_path / "net", tmp_path / "report"
    arguments = ["testnet", "up", "--nodes", "2", "--attackers", "0", "--epochs", "3"]
    process = subprocess.Popen(
        [SAPO, *arguments, "--data-dir", str(net), "--report", str(report), "--no-progress"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), "SAPO_LOCKS_DIR": str(tmp_path / "locks")},
    )
    try:
        state = net / "testnet.json"
        assert wait_until(lambda: trains(state), 400.0)
        [chain] = [each for each in json.loads(state.read_text())["processes"] if each["role"] == "chain"]
        os.kill(chain["pid"], signal.SIGKILL)
        _, told = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 6, told
    assert "the chain died: it exited with code -9" in told
    assert f"the logs of all processes are in {report / 'logs'}" in told.replace("\n", "")
    assert "sapo join 'sapo://" in told
    names = {log.name for log in (report / "logs").iterdir()}
    assert names == {"chain.txt", "invitation.txt", "ada.txt", "bo.txt"}
