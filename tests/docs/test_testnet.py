"""Every command of the page on test networks, in order, on a chain that sapo does not run."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.anvil import Anvil, running_anvil

from sapo_client.testnet.processes import ChildProcess, spawn, stop, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

PAGE = Path(__file__).parents[2] / "docs" / "testnet.md"
PATIENCE_SECONDS = 300.0
"""A few epochs of half a minute, on a busy machine; the page has several such waits."""


def commands() -> list[str]:
    """Return the lines of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


class Reader:
    """Runs the commands of the page in a shell, in a folder of its own."""

    def __init__(self, folder: Path, anvil: Anvil) -> None:
        self._folder = folder
        self._anvil = anvil
        self._nodes: list[ChildProcess] = []
        self._environment = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SAPO_LOCKS_DIR": str(folder / "locks"),
            "OMP_NUM_THREADS": "1",
        }
        self._here = {
            "http://127.0.0.1:8545": anvil.url,
            "/tcp/4001": f"/tcp/{_free_port()}",
            "--epoch-seconds 60": "--epoch-seconds 30",
        }
        self.done: list[str] = []

    def type(self, line: str) -> None:
        """Run a command, and what the page describes around it."""
        for written, meant in self._here.items():
            line = line.replace(written, meant)
        if line.startswith("export EPOCH="):
            self._environment["EPOCH"] = str(self.status("newcomer")["last epoch"])
        elif line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._environment[name] = value
        elif line.startswith("sapo join "):
            self._start(line)
        elif line.startswith("sapo ledger status "):
            assert wait_until(lambda: self._claimable(line) > 0, PATIENCE_SECONDS), self._log_tail()
        else:
            self._run(line)
        if line.startswith("sapo keys new operator"):
            shown = json.loads(self._run("sapo keys show operator --json"))
            self._anvil.give(shown["account"], 10**17)
        self.done.append(line)

    def _run(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}{self._log_tail()}"
        return done.stdout

    def _start(self, line: str) -> None:
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        argv = ["env", *settings, "bash", "-c", f"exec {line}"]
        log = self._folder / f"node-{len(self._nodes)}.txt"
        self._nodes.append(spawn(line, argv, folder=self._folder, log=log))

    def _claimable(self, line: str) -> int:
        done = subprocess.run(
            ["bash", "-c", f"{line} --json"],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            check=False,
        )
        assert all(node.exit_code() is None for node in self._nodes), self._log_tail()
        return int(json.loads(done.stdout)["claimable"]) if done.returncode == 0 else 0

    def _log_tail(self) -> str:
        return "\n".join(f"{node.name}:\n{node.log_tail()}" for node in self._nodes)

    def status(self, identity: str) -> dict[str, Any]:
        """Return the ledger status of an identity's account."""
        line = "sapo ledger status --identity {0} --rpc $RPC --data-dir {0}-node --json"
        status: dict[str, Any] = json.loads(self._run(line.format(identity)))
        return status

    @contextmanager
    def at_work(self) -> Iterator["Reader"]:
        """Stop the started nodes on every exit."""
        try:
            yield self
        finally:
            stop(self._nodes, PATIENCE_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_newcomer_follows_the_page_to_a_claimed_reward(tmp_path: Path) -> None:
    with running_anvil(tmp_path) as anvil, Reader(tmp_path, anvil).at_work() as reader:
        for line in commands():
            reader.type(line)
        assert len(reader.done) == len(commands()) > 10
        assert reader.status("newcomer")["points claimed"] > 0
        assert reader.status("newcomer")["tokens"] > 100  # the faucet gave a hundred
