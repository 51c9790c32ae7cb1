"""Power cuts at random times: a copy of the files continues from its last checkpoint."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from support.nodes import PATIENCE_SECONDS, manifest_of
from support.sapo_process import SAPO

from sapo_client import keystore
from sapo_client.bench.endurance import children
from sapo_client.observe.events import Event, read_events
from sapo_client.paths import DataDir
from sapo_client.testnet.processes import wait_until
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(7200)]

CUTS = int(os.environ.get("SAPO_POWER_CUTS", "20"))
MAX_ROUNDS = 12
"""Most rounds between a start and a cut; a checkpoint is written every few of them."""


def start(data: DataDir, key: Path, policy: Path) -> subprocess.Popen[str]:
    """Start a node in a process group of its own."""
    settings = {
        "SAPO_LEARNER__MODEL": str(policy),
        "SAPO_LEARNER__MAX_NEW_TOKENS": "6",
        "SAPO_LEARNER__LOCAL_GROUPS": "2",
        "SAPO_LEARNER__EXTERNAL_GROUPS": "0",
        "SAPO_CANARY__EVERY_ROUNDS": "5",
        "SAPO_CANARY__ITEMS": "8",
        "SAPO_SWARM__LISTEN": "/ip4/127.0.0.1/tcp/0",
        "SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0",
        "SAPO_LOCKS_DIR": str(data.root.parent / "locks"),
        "HOME": str(data.root.parent),
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [SAPO, "join", "--identity", str(key), "--data-dir", str(data.root)],
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def cut(process: subprocess.Popen[str], rounds: int, fraction: float, data: DataDir, kept: Path) -> DataDir:
    """Let some rounds end and a part of the next one pass; stop everything at once and keep the files."""
    assert process.stdout is not None
    overdue = threading.Timer(4 * PATIENCE_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    overdue.start()
    seconds = 0.0
    for shown, line in enumerate((each for each in process.stdout if each.startswith("round ")), 1):
        seconds = float(line.split("  ")[6].partition(" ")[0])
        if shown == rounds:
            break
    else:
        raise AssertionError("the node ended by itself")
    threading.Event().wait(fraction * seconds)
    processes = [process.pid, *children(process.pid)]
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    assert wait_until(lambda: all(map(stands, processes)), PATIENCE_SECONDS)  # a system call may end first
    shutil.copytree(data.root, kept)
    for each in processes:
        os.kill(each, signal.SIGKILL)
    process.communicate()
    overdue.cancel()
    return DataDir(kept)


def stands(pid: int) -> bool:
    """Whether a process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def named(data: DataDir, *names: str) -> list[Event]:
    return [event for event in read_events(data.events) if event["event"] in names]


def newest_checkpoint(data: DataDir) -> int:
    return max((int(path.name.rpartition("-")[2]) for path in data.checkpoints.glob("step-*")), default=0)


def test_at_most_one_checkpoint_interval_is_lost(tmp_path: Path, weekdays: Suite, policy: Path) -> None:
    key = tmp_path / "key.json"
    keystore.create(key, None)
    data = DataDir(tmp_path / "node-0").create()
    data.manifest.write_text(manifest_to_json(manifest_of(weekdays, epoch_seconds=3600)))
    rng = random.Random(7)
    expected = 0
    for number in range(1, CUTS + 1):
        process = start(data, key, policy)
        try:
            kept = cut(process, rng.randint(1, MAX_ROUNDS), rng.random(), data, tmp_path / f"node-{number}")
        finally:
            process.kill()
        starts = [event["step"] for event in named(kept, "node_started")]
        assert starts[-1] == expected, "it went on from the last whole checkpoint of what was on the disk"
        assert named(kept, "policy_reset", "checkpoint_set_aside") == []
        slots = [(event["epoch"], event["slot"]) for event in named(kept, "published")]
        assert len(slots) == len(set(slots)), "no slot is signed twice"
        expected = newest_checkpoint(kept)
        assert expected >= starts[-1]
        shutil.rmtree(data.root)
        data = kept
