"""`sapo service`: installs a unit only if it would start without questions; otherwise it gives the reason."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
from support.nodes import manifest_of
from support.sapo_process import Run

from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="systemd")


@pytest.fixture
def member(sapo: Run, weekdays: Suite, tmp_path: Path) -> Run:
    """A user with a key, and a data directory that belongs to a swarm."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "manifest.json").write_text(manifest_to_json(manifest_of(weekdays)))
    sapo("keys", "new", "key", "--no-passphrase")
    return sapo


def test_a_unit_is_written_and_named(member: Run, home: dict[str, str], tmp_path: Path) -> None:
    installed = member("service", "install", "--data-dir", "node", "--no-start", "--json")
    assert installed.returncode == 0, installed.stderr
    unit = Path(home["HOME"]) / ".config/systemd/user/sapo.service"
    assert json.loads(installed.stdout) == {"unit": str(unit), "started": False}
    text = unit.read_text()
    key = Path(home["HOME"]) / ".config/sapo/keys/key.json"
    assert f"join --identity {key} --data-dir {tmp_path / 'node'}\n" in text
    assert "LoadCredential" not in text
    shown = member("service", "install", "--data-dir", "node", "--print", "--json")
    assert json.loads(shown.stdout) == {"unit": str(unit), "text": text}


def test_a_failing_service_manager_is_reported(member: Run, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    systemctl = folder / "systemctl"
    systemctl.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    systemctl.chmod(systemctl.stat().st_mode | stat.S_IXUSR)
    done = member("service", "install", "--data-dir", "node", PATH=f"{folder}:/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (3, "")
    assert "`systemctl --user daemon-reload` failed: Failed to connect to bus" in done.stderr
    assert "run `sapo join` in a terminal or in a container" in done.stderr
    systemctl.write_text("#!/bin/sh\necho ActiveState=active\necho StatusText=error: x\n")
    facts = member("service", "status", "--json", PATH=f"{folder}:/usr/bin:/bin")
    assert json.loads(facts.stdout)["ActiveState"] == "active"
    removed = member("service", "uninstall", PATH=f"{folder}:/usr/bin:/bin")
    assert removed.returncode == 0, removed.stderr
    gone = member("service", "status")
    assert (gone.returncode, "no service is installed" in gone.stderr) == (3, True)


def test_a_service_that_would_need_a_prompt_is_refused(sapo: Run, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a long passphrase")
    (tmp_path / "word").chmod(0o600)
    sapo("keys", "new", "key", "--kdf", "interactive", "--passphrase-file", "word")
    done = sapo("service", "install", "--data-dir", "node")
    assert (done.returncode, "a service cannot ask" in done.stderr) == (4, True)
    done = sapo("service", "install", "--data-dir", "node", "--passphrase-file", "word")
    assert (done.returncode, "no swarm to join" in done.stderr) == (3, True)
    assert sapo("service", "install", "--name", "a/b").returncode in (2, 4)


@pytest.mark.parametrize("command", ["status", "logs", "uninstall"])
def test_without_a_unit_every_command_says_how_to_install_one(
    sapo: Run, tmp_path: Path, command: str
) -> None:
    """`logs` printed what journalctl says of a unit that never was."""
    unit = tmp_path / "home/.config/systemd/user/sapo.service"
    done = sapo("service", command)
    assert (done.returncode, done.stderr) == (
        3,
        f"error: no service is installed: there is no {unit}\n"
        "hint: install one: sapo service install --identity key\n",
    )
