"""Commands that write where no file can be written: each says so and what to do, and none ends in a bug."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.nodes import manifest_of
from support.sapo_process import SAPO, TIMEOUT_SECONDS
from support.small_disk import needs_mounts, on_read_only_disk

from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_verification.admission.envelope_store import EnvelopeStore


@pytest.fixture
def ran(tmp_path: Path, weekdays: Suite) -> DataDir:
    """Return a data directory in which a node ran, without a rollout."""
    data = DataDir(tmp_path / "node").create()
    data.manifest.write_text(manifest_to_json(manifest_of(weekdays)), encoding="utf-8")
    EnvelopeStore(data.database)
    data.checkpoints.mkdir(parents=True)
    return data


@needs_mounts
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (
            ("join", "--alone", "--identity", "key", "--data-dir", "disk"),
            8,
            "error: cannot use the data directory disk: Read-only file system\n"
            "hint: choose another one with --data-dir, or correct its permissions\n",
        ),
        *(
            (
                ("export", kind, f"disk/{name}", "--data-dir", "node"),
                8,
                f"error: cannot write to {folder}: Read-only file system\nhint: name another place\n",
            )
            for kind, name, folder in (
                ("rollouts", "x", "disk/x"),
                ("model", "", "disk"),
                ("parquet", "x.parquet", "disk"),
            )
        ),
    ],
)
def test_a_read_only_disk_is_told(
    home: dict[str, str], ran: DataDir, tmp_path: Path, command: tuple[str, ...], code: int, told: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = {"env": home, "cwd": tmp_path, "check": False, "timeout": TIMEOUT_SECONDS}
    made = [SAPO, "keys", "new", "key", "--no-passphrase"]
    subprocess.run(made, capture_output=True, **options)  # type: ignore[call-overload]
    inside = on_read_only_disk(disk, [SAPO, *command])
    done = subprocess.run(inside, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


@needs_mounts
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (
            ("repair",),
            8,
            "error: cannot open the lock file {root}/node.lock: Read-only file system\n"
            "hint: correct the permissions of its folder, or name another one with --data-dir\n",
        ),
        (
            ("ledger", "status"),
            3,
            "error: the swarm 'test swarm' has no chain, so nothing is counted or paid in it\n"
            "hint: `sapo rollouts` shows what was accepted; `sapo swarm deploy` founds a swarm with a"
            " chain\n",
        ),
    ],
)
def test_the_data_directory_of_a_node_on_a_read_only_disk(
    home: dict[str, str], ran: DataDir, command: tuple[str, ...], code: int, told: str
) -> None:
    inside = on_read_only_disk(ran.root, [SAPO, *command, "--data-dir", str(ran.root)])
    done = subprocess.run(
        inside, env=home, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told.format(root=ran.root))


def test_a_folder_in_the_place_of_a_table_is_told(ran: DataDir, home: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [SAPO, "export", "parquet", str(tmp_path), "--data-dir", str(ran.root)],
        env=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    told = f"error: {tmp_path} is a folder\nhint: name a file, such as rollouts.parquet\n"
    assert (done.returncode, done.stdout, done.stderr) == (8, "", told)
