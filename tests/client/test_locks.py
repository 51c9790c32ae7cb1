"""Locks: their owner, its description, and that a query never releases a lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.file_limit import largest_file

from sapo_client.errors import ExitCode, SapoError
from sapo_client.locks import Lock, holder

ASKS = """
import json, sys
from pathlib import Path
from sapo_client.locks import holder
found = holder(Path(sys.argv[1]))
print("free" if found is None else json.dumps([found.name, dict(found.note)]))
"""


def asked_elsewhere(path: Path) -> str:
    """Return what another process finds out about a lock."""
    words = [sys.executable, "-c", ASKS, str(path)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_others_read_the_holders_note_and_a_shorter_note_replaces_a_longer_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    lock = Lock(path, what="this")
    with lock.held():
        silent = asked_elsewhere(path)
        lock.note({"waits_for": "a server that does not answer"})
        long = asked_elsewhere(path)
        lock.note({"waits_for": "it"})
        short = asked_elsewhere(path)
    assert silent.startswith('["another process (pid ')
    assert silent.endswith(')", {}]')
    assert long.endswith(')", {"waits_for": "a server that does not answer"}]')
    assert short.endswith(')", {"waits_for": "it"}]')
    assert asked_elsewhere(path) == "free"


def test_the_holder_can_query_and_take_its_lock_again(tmp_path: Path) -> None:
    """Closing any descriptor of the file would free a record lock of the process."""
    path = tmp_path / "lock"
    lock = Lock(path, what="this")
    with lock.held():
        lock.note({"waits_for": "it"})
        found = holder(path)
        with lock.held():
            assert lock.is_held
        with (
            pytest.raises(SapoError, match="this is already in use by this process"),
            Lock(path, what="this").held(),
        ):
            pass
        assert asked_elsewhere(path) != "free"
    assert found is not None
    assert found.note == {"waits_for": "it"}
    assert (lock.is_held, holder(path)) == (False, None)


def test_a_lock_that_cannot_be_opened_is_an_error_of_its_folder(tmp_path: Path) -> None:
    """As on a read-only disk, where the file is there from before."""
    path = tmp_path / "key.lock"
    path.mkdir()
    lock = Lock(path, what="identity key", exit_code=ExitCode.KEYSTORE)
    with pytest.raises(SapoError) as caught:
        lock.require_free()
    assert (caught.value.text, caught.value.hint, caught.value.exit_code) == (
        f"cannot open the lock file {path}: Is a directory",
        "correct the permissions of its folder, or name another one with SAPO_LOCKS_DIR",
        ExitCode.KEYSTORE,
    )


def test_on_a_full_disk_a_lock_is_held_without_a_note(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text('{"pid": 1, "started": "of another one"}\n')
    with largest_file(0), Lock(path, what="this").held():
        assert path.stat().st_size == 0
    lock = Lock(path, what="this")
    with lock.held():
        with largest_file(0):
            lock.note({"waits_for": "space"})
        assert asked_elsewhere(path) == '["another process", {}]'
    assert holder(path) is None
