"""`sapo.Node` with an unreachable model server or a full disk waits as `sapo join` does, and reports it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sapo_process import TIMEOUT_SECONDS
from support.small_disk import free, needs_mounts, on_full_disk

import sapo

pytestmark = pytest.mark.e2e

PROGRAM = """
import sys
import sapo

node = sapo.Node(sys.argv[1], alone=True, identity=sys.argv[2], steps=1)
node.on_waiting(lambda finding: print("waits for", finding.code, flush=True))
with node:
    for summary in node.rounds():
        print("step", summary.step, flush=True)
print("left", node.wait())
"""


@pytest.fixture
def server() -> Iterator[str]:
    """Return the address of a server that does not answer."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


def node_of(folder: Path, server: str, *, waits: bool = True) -> sapo.Node:
    """Return a node whose model is served elsewhere."""
    settings = {"learner.backend": "vllm", "learner.endpoint": server}
    return sapo.Node(folder, alone=True, waits=waits, settings=settings)


def test_a_node_waits_for_its_server_until_it_is_stopped(server: str, tmp_path: Path) -> None:
    node = node_of(tmp_path / "node", server)
    told, asked = list[sapo.HealthFinding](), list[str]()

    @node.on_waiting
    def stop(finding: sapo.HealthFinding) -> None:
        with pytest.raises(sapo.SapoError) as caught:
            node.status()
        told.append(finding)
        asked.append(str(caught.value))
        node.stop()

    assert node.start() is node
    assert node.wait()
    assert (node.is_running, node.step) == (False, 0)
    [finding] = told
    assert finding.code == "server_away"
    assert finding.text.startswith(f"the node has not started: {server} does not answer: ")
    assert finding.hint == (
        "see that the server runs, and that learner.endpoint is its address: the start is tried again at"
        " least once a minute, stopping it ends the waiting"
    )
    assert asked[0].startswith(f"a node is starting in {tmp_path / 'node'} (this process (pid "), asked


def test_a_node_started_without_waiting_raises(server: str, tmp_path: Path) -> None:
    node = node_of(tmp_path / "node", server, waits=False)
    node.on_waiting(lambda finding: pytest.fail(finding.text))
    with pytest.raises(sapo.SapoError, match="does not answer"):
        node.start()
    assert not node.is_running


@needs_mounts
def test_a_node_waits_for_space_and_continues(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    sapo.Node(tmp_path / "keys")  # which creates them
    program = [sys.executable, "-c", PROGRAM, str(disk / "node"), str(tmp_path / "keys" / "identity.json")]
    with subprocess.Popen(
        on_full_disk(disk, program, left=0), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        overdue = threading.Timer(TIMEOUT_SECONDS, process.kill)
        overdue.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "waits for disk_full\n"
        free(disk, process.pid)
        shown, errors = process.communicate()
        overdue.cancel()
    lines = [line for line in shown.splitlines() if line != "waits for disk_full"]
    assert lines == ["step 1", "left True"], errors
