"""`sapo join` on a full disk and before the model's server: it states what it waits for, and then starts."""

from __future__ import annotations

import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from support.sapo_process import SAPO, Run, running

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import HealthReport

TRIED_AGAIN = "the start is tried again at least once a minute, Ctrl-C ends it\n"


IN_FOREGROUND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a command as a shell's foreground does; one in its background, as the tests may be, ignores Ctrl-C."""


def started(command: list[str], home: dict[str, str]) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a command in the foreground; kill it in the end, or when it hangs."""
    return running([sys.executable, "-c", IN_FOREGROUND, *command], home)


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a process after Ctrl-C, and what it printed on standard error since."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    return process.returncode, errors


def until_told(sapo: Run, folder: Path, text: str) -> str:
    """Return what `sapo status` says on standard error, once a text is in it."""
    while text not in (told := sapo("status", "--data-dir", folder).stderr):
        assert "a node is starting in" in told
    return told


def test_a_node_that_is_started_on_a_full_disk_waits_for_space(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    """No file of the node may grow, so that already its start fails; then they may."""
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "node"
    join = shlex.join([SAPO, "join", "--alone", "--identity", "key", "--data-dir", str(folder)])
    with started(["/bin/sh", "-c", f"ulimit -S -f 0 && exec {join}"], home) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == (
            f"error: the node has not started: the disk is full: free space in {folder} (disk_full);"
            f" free some space: {TRIED_AGAIN}"
        )
        _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert process.stdout.readline().startswith("round 1 ")
        code, _ = interrupted(process)
    assert code == 130


def test_a_node_whose_standard_error_is_a_file_on_the_full_disk_waits_too(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    """The message cannot be printed; later output is in the file."""
    sapo("keys", "new", "key", "--no-passphrase")
    folder, errors = tmp_path / "node", tmp_path / "errors"
    join = shlex.join([SAPO, "join", "--alone", "--identity", "key", "--data-dir", str(folder)])
    with started(["/bin/sh", "-c", f"ulimit -S -f 0 && exec {join} 2> {errors}"], home) as process:
        while not (folder / "node.lock").exists():
            assert process.poll() is None
        until_told(sapo, folder, "or hangs (another process): it does not answer yet")
        _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert process.stdout is not None
        assert process.stdout.readline().startswith("round 1 ")
        code, _ = interrupted(process)
    assert code == 130
    assert "stopping after this round" in errors.read_text()


def test_a_node_waits_at_its_start_for_an_unreachable_server(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{unused.getsockname()[1]}"
        folder = tmp_path / "node"
        words = [SAPO, "join", "--alone", "--identity", "key", "--data-dir", str(folder)]
        uses = {"SAPO_LEARNER__BACKEND": "vllm", "SAPO_LEARNER__ENDPOINT": server}
        with started(words, home | uses) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            head = f"error: the node has not started: {server} does not answer: "
            assert line.startswith(head), line
            hint = "see that the server runs, and that learner.endpoint is its address"
            assert line.endswith(f" (server_away); {hint}: {TRIED_AGAIN}"), line
            why = line.removeprefix("error: the node has not started: ").partition(" (server_away)")[0]
            told = until_told(sapo, folder, f" and waits: {why}")
            asked = sapo("status", "--healthy", "--json", "--data-dir", folder)
            code, _ = interrupted(process)
    assert code == 130
    assert re.fullmatch(
        rf"error: a node is starting in {folder} \(another process \(pid {process.pid}, since \S+\)\) and"
        rf" waits: {re.escape(why)}\n"
        rf"hint: {re.escape(hint)}: the start is tried again at least once a minute\n",
        told,
    )
    assert asked.returncode == 5
    assert HealthReport.model_validate_json(asked.stdout) == HealthReport(
        healthy=False,
        state="starting",
        findings=(
            HealthFinding(
                FindingCode.SERVER_AWAY,
                FindingLevel.ERROR,
                f"the node has not started: {why}",
                f"{hint}: the start is tried again at least once a minute",
            ),
        ),
    )
    assert "no node is running" in sapo("status", "--data-dir", folder).stderr
