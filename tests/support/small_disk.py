"""A real full disk for one process: a file system in memory that no other process sees."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

FILLING_FILES: Final = 200
"""More than the files of a young data directory."""

_MOUNT: Final = """
mount -t tmpfs -o size=256m,nr_inodes="$2" sapo "$1" || exit
number=0
while [ "$number" -lt "$3" ]; do : > "$1/filling-$number"; number=$((number + 1)); done
shift 3
exec "$@"
"""


def _may_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "sapo", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not _may_mount(), reason="this user may mount no file system of their own")


def on_full_disk(disk: Path, command: Sequence[str], *, left: int) -> list[str]:
    """Return a command that runs another one, which finds a disk with space for a number of files.

    The process that is started becomes that of the other command.

    Args:
        disk: where it is; a folder that exists.
    """
    files = 1 + FILLING_FILES + left  # with the folder itself
    numbers = [str(disk), str(files), str(FILLING_FILES)]
    return ["unshare", "-rm", "/bin/sh", "-c", _MOUNT, "mount", *numbers, *command]


def on_read_only_disk(disk: Path, command: Sequence[str]) -> list[str]:
    """Return a command that runs another one, which finds a folder on a disk that takes no files.

    Args:
        disk: the folder, with its content.
    """
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    return ["unshare", "-rm", "/bin/sh", "-c", script, "mount", str(disk), *command]


def free(disk: Path, process: int) -> None:
    """Let such a disk have space again."""
    for filling in Path(f"/proc/{process}/root", *disk.parts[1:]).glob("filling-*"):
        filling.unlink()
