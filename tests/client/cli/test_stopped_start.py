"""`sapo stop` of a node that starts, in every phase of the start, in real processes."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.sapo_process import SAPO, Run, running, trained

from sapo_client import locks
from sapo_client.paths import DataDir

STOPPED_AT = """
import os, subprocess, sys, threading
from importlib.abc import MetaPathFinder

imported, told, folder = sys.argv[1:4]
del sys.argv[1:4]

class Stop(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == imported:
            command = [os.environ["SAPO_COMMAND"], "stop", "--json", "--data-dir", folder]
            with open(told, "w") as answer:  # standard error stays open until the command has ended
                subprocess.Popen(command, stdout=answer)
            threading.Event().wait()  # an import that takes long

sys.meta_path.insert(0, Stop())
from sapo_client.cli.entry import main
main()
"""
"""Runs `sapo`; when a module is to be imported, it is asked to stop, and the import does not end."""

ASKED = {"stopping": True, "finish": False}
SAID = "stopped by `sapo stop` before it started\n"


def join(folder: Path, *options: object) -> list[str]:
    """Return the words of a command that trains alone in a folder."""
    return ["join", "--alone", "--identity", "key", "--data-dir", str(folder), *map(str, options)]


def stopped_at(
    imported: str, words: Sequence[str], home: dict[str, str], told: Path, folder: Path
) -> tuple[int | None, str, object]:
    """Return exit code and errors of a command that is asked to stop at an import, and the answer."""
    command = [sys.executable, "-c", STOPPED_AT, imported, str(told), str(folder), *words]
    extra = {"SAPO_COMMAND": SAPO, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with running(command, home | extra) as process:
        _, errors = process.communicate()
    return process.returncode, errors, json.loads(told.read_text() or "{}")


@pytest.mark.parametrize(
    "imported", ["sapo_client.node.bootstrap", "trio", "sapo_client.founding.alone", "sapo_client.node.app"]
)
def test_a_stop_ends_the_imports_of_a_first_start_and_leaves_no_directory(
    sapo: Run, home: dict[str, str], tmp_path: Path, imported: str
) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "made" / "node"
    ended = stopped_at(imported, join(folder), home, tmp_path / "told", folder)
    assert ended == (0, SAID, ASKED)
    assert not (tmp_path / "made").exists()


def test_a_stop_while_the_parts_of_a_node_are_created_leaves_a_directory_that_starts(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "node"
    ended = stopped_at("sapo_client.learner.sizing.presets", join(folder), home, tmp_path / "told", folder)
    assert ended == (0, SAID, ASKED)
    assert locks.holder(DataDir(folder).lock) is None
    again = sapo(*join(folder, "--steps", 1))
    assert (again.returncode, again.stdout.startswith("round 1 ")) == (0, True), again.stderr


def test_a_stop_ends_a_start_that_waits_for_its_passphrase(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    phrase, folder = tmp_path / "phrase", tmp_path / "node"
    os.mkfifo(phrase)
    (tmp_path / "written").write_text("a passphrase of some words\n")
    (tmp_path / "written").chmod(0o600)
    made = sapo("keys", "new", "sealed", "--passphrase-file", tmp_path / "written")
    assert made.returncode == 0, made.stderr
    words = ["join", "--alone", "--identity", "sealed", "--data-dir", str(folder), "--passphrase-file"]
    with running([SAPO, *words, str(phrase)], home) as process, phrase.open("w"):
        done = sapo("stop", "--json", "--data-dir", folder)
        _, errors = process.communicate()
    assert (process.returncode, errors, json.loads(done.stdout)) == (0, SAID, ASKED)
    assert not folder.exists()


def test_a_stop_ends_a_start_whose_link_is_not_answered(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "node"
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = f"http://127.0.0.1:{server.getsockname()[1]}/swarm"
        words = [SAPO, "join", link, "--identity", "key", "--data-dir", str(folder)]
        with running(words, home) as process:
            asking, _ = server.accept()
            done = sapo("stop", "--json", "--data-dir", folder)
            _, errors = process.communicate()
            asking.close()
    assert (process.returncode, errors, json.loads(done.stdout)) == (0, SAID, ASKED)
    assert not folder.exists()


def test_a_stop_ends_a_start_whose_model_loads(sapo: Run, home: dict[str, str], tmp_path: Path) -> None:
    """The learner asks its server for the model, and gets no answer."""
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "node"
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        uses = {"SAPO_LEARNER__BACKEND": "vllm", "SAPO_LEARNER__ENDPOINT": endpoint}
        with running([SAPO, *join(folder)], home | uses) as process:
            asking, _ = server.accept()
            shown = sapo("status", "--data-dir", folder)
            done = sapo("stop", "--json", "--data-dir", folder)
            _, errors = process.communicate()
            asking.close()
    assert (process.returncode, errors, json.loads(done.stdout)) == (0, SAID, ASKED)
    assert "a node is starting in" in shown.stderr
    assert locks.holder(DataDir(folder).lock) is None
    assert not DataDir(folder).stop_request.exists()
    again = sapo(*join(folder, "--steps", 1))
    assert (again.returncode, again.stdout.startswith("round 1 ")) == (0, True), again.stderr


def test_a_start_that_is_refused_for_its_identity_leaves_no_directory(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    with trained(join(tmp_path / "first"), home, tmp_path, 1):
        refused = sapo(*join(tmp_path / "second"))
    assert refused.returncode == 4
    assert refused.stderr.startswith("error: identity key.json is already in use by another process (pid ")
    assert not (tmp_path / "second").exists()
