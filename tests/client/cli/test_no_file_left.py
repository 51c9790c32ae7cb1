"""`sapo join` on a disk on which no file can be created: it waits until that is possible."""

from __future__ import annotations

import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.sapo_process import SAPO, Run, running
from support.small_disk import free, needs_mounts, on_full_disk

pytestmark = [pytest.mark.e2e, needs_mounts]


def joined_on_full_disk(
    disk: Path, home: dict[str, str], *, left: int
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a node that trains alone, with place for so many files; kill it in the end, or when it hangs."""
    disk.mkdir()
    join = [SAPO, "join", "--alone", "--identity", "key", "--data-dir", str(disk / "node")]
    return running(on_full_disk(disk, join, left=left), home)


@pytest.mark.parametrize("left", [0, 2, 8, 12])
def test_a_start_waits_for_space_whichever_file_it_could_not_create(
    sapo: Run, home: dict[str, str], tmp_path: Path, left: int
) -> None:
    """The data directory, its lock, and the files of its databases."""
    sapo("keys", "new", "key", "--no-passphrase")
    disk = tmp_path / "disk"
    with joined_on_full_disk(disk, home, left=left) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        told = (
            f"error: the node has not started: the disk is full: free space in {disk / 'node'} (disk_full);"
        )
        assert process.stderr.readline().startswith(told)
        if left >= 8:  # the lock could be created, and states why no node answers
            shown = sapo("status", "--data-dir", f"/proc/{process.pid}/root{disk}/node").stderr
            assert f"waits: the disk is full: free space in {disk / 'node'}\n" in shown
        free(disk, process.pid)
        assert process.stdout.readline().startswith("round 1 ")
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
