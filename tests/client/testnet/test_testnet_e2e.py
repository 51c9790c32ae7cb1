"""Whole swarms of real processes: one that runs to its report, one whose nodes leave and return."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sapo_client import keystore
from sapo_client.errors import SapoError
from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import Event, read_events
from sapo_client.paths import DataDir
from sapo_client.testnet import state
from sapo_client.testnet.attacks import ATTACKS, BY_NAME
from sapo_client.testnet.node_record import NodeRecord, read_record
from sapo_client.testnet.plan import Layout, NodeHome
from sapo_client.testnet.processes import ChildProcess, sapo, spawn, stop, wait_until

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0

SURE_KINDS = {attack.name for attack in ATTACKS} - {"epoch_past", "late_replay"}
"""A short run may end before the two others have an epoch, or a message, that is old enough."""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))


def test_a_short_swarm_learns_pays_and_refuses(tmp_path: Path) -> None:
    argv = sapo(*_demo_of_attacks(), str(tmp_path / "report"), "--data-dir", str(tmp_path / "net"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["failures"] == []
    assert {row["kind"] for row in report["attacks"]} >= SURE_KINDS
    assert report["files_created"] == []
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "logs",
        "report.json",
        "report.md",
        "reward.png",
    ]
    _check_proof(Layout(tmp_path / "net"), report)
    assert not any(entry.runs for entry in state.read(Layout(tmp_path / "net")).entries)


def _demo_of_attacks() -> list[str]:
    """Return the words of `make demo-attacks` after `sapo`, up to the report's folder."""
    makefile = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    [words] = re.findall(r"(?m)^demo-attacks: .*\n\t\$\(BIN\)/sapo (.+) \$\(REPORT\)$", makefile)
    return str(words).split()


def _check_proof(layout: Layout, report: dict[str, Any]) -> None:
    """Assert that each external rollout of each step was another node's, admitted and verified here before.

    An attacker that copies answers is sometimes right by chance; that is a contribution like any other.
    """
    authors = {node["account"] for node in report["nodes"]}
    lucky = {id_ for row in report["attacks"] if BY_NAME[row["kind"]].may_be_right for id_ in row["trained"]}
    for node in report["nodes"]:
        known: dict[str, set[str]] = {"admitted": set(), "verified": set()}
        external = []
        for event in read_events(layout.node(node["name"]).data.events):
            if event["event"] in known:
                known[str(event["event"])].add(str(event["content_id"]))
            elif event["event"] == "step":
                groups: Any = event["external"]
                assert {group["content_id"] for group in groups} <= known["admitted"] & known["verified"]
                external += groups
        others = {group["account"] for group in external if group["content_id"] not in lucky}
        assert others <= authors - {node["account"]}
        assert others


@pytest.mark.long
def test_a_run_continues_for_missing_steps_and_ends_after_twice_its_epochs(tmp_path: Path) -> None:
    report = tmp_path / "report"
    length = ["--epochs", "2", "--epoch-seconds", "20", "--steps", "100000"]
    argv = sapo("testnet", "up", "--nodes", "2", "--attackers", "0", *length, "--report", str(report))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"so the run goes on: (.+)", done.stderr) == [
        "epoch 3 of at most 4",
        "epoch 4 of at most 4",
    ]
    found = json.loads((report / "report.json").read_text())
    assert found["epochs"] == 4
    assert [row["epoch"] for row in found["ledger"]] == [0, 1, 2, 3]


@pytest.mark.long
def test_nodes_are_killed_come_back_and_join_late(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "net")
    folder = ("--json", "--data-dir", str(layout.root))
    with _running_testnet(tmp_path) as testnet:
        assert wait_until(lambda: _has_state(layout) and _steps(layout.node("bo")) > 5, PATIENCE_SECONDS)
        latecomer = _join_late(tmp_path, layout)
        try:
            with _killed_and_restarted(layout, "bo"):
                _is_seen(layout.node("ada"), latecomer)
                shown = _json(sapo("testnet", "status", *folder))["processes"]
                assert [(p["name"], p["state"].split()[0]) for p in shown] == [
                    ("testnet", "pid"),
                    ("chain", "pid"),
                    ("ada", "pid"),
                    ("bo", "started"),
                    ("invitation", "pid"),
                ]
        finally:
            stop([latecomer], PATIENCE_SECONDS)
        assert testnet.exit_code() is None
        assert _json(sapo("testnet", "down", *folder)) == {"ended": ["testnet"]}
        assert wait_until(lambda: testnet.exit_code() is not None, PATIENCE_SECONDS)
    assert testnet.exit_code() == 143
    assert not any(entry.runs for entry in state.read(layout).entries)
    assert not any(state.is_up(layout.node(name).data.root) for name in ("ada", "bo"))


def _json(argv: tuple[str, ...]) -> Any:
    return json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)


@contextmanager
def _killed_and_restarted(layout: Layout, name: str) -> Iterator[None]:
    """Kill a node, and start it again by the command in the testnet's state file."""
    home, other = layout.node(name), layout.node("ada")
    entry = next(entry for entry in state.read(layout).entries if entry.name == name)
    assert wait_until(lambda: bool(_checkpoints(home)), PATIENCE_SECONDS)
    os.kill(entry.pid, signal.SIGKILL)
    before = _record(home)
    others_step = _steps(other)
    assert wait_until(lambda: _steps(other) > others_step + 2, PATIENCE_SECONDS)
    saved = max(_checkpoints(home))
    again = spawn(name, entry.argv, folder=home.root, log=home.log)
    try:
        started = _await_event(home, lambda event: event["event"] == "node_started", skip=1)
        assert started["step"] == saved > 0
        first = _await_event(home, lambda event: event["event"] == "step", skip=len(before.steps))
        assert first["step"] == saved + 1
        anew = _record(home).published - before.published
        assert anew
        _await_event(other, lambda e: e["event"] == "admitted" and e["content_id"] in anew, skip=0)
        yield
    finally:
        stop([again], PATIENCE_SECONDS)


def _checkpoints(home: NodeHome) -> set[int]:
    """Return the steps at which a node's policy was saved."""
    return {int(path.name.removeprefix("step-")) for path in home.data.checkpoints.glob("step-*")}


def _join_late(tmp_path: Path, layout: Layout) -> ChildProcess:
    """Start a node with its own key, directory and copy of the manifest, and one bootstrap address."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    manifest = folder / "manifest.json"
    manifest.write_text(layout.manifest.read_text())
    keystore.create(folder / "key.json", None)
    address = _await_event(layout.node("bo"), lambda e: e["event"] == "node_started", skip=0)["addresses"]
    assert isinstance(address, list)
    argv = sapo(
        "join", "--identity", str(folder / "key.json"), "--manifest", str(manifest),
        "--bootstrap", str(address[0]), "--listen", "/ip4/127.0.0.1/tcp/0",
        "--data-dir", str(folder / "data"),
        "--rpc", state.read(layout).rpc_url,
    )  # fmt: skip
    return spawn("latecomer", argv, folder=folder, log=folder / "log.txt")


def _is_seen(home: NodeHome, latecomer: ChildProcess) -> None:
    data = DataDir(latecomer.log.parent / "data")
    assert wait_until(lambda: bool(_record_of(data).peer_id), PATIENCE_SECONDS), latecomer.log_tail()
    peer_id = _record_of(data).peer_id

    def listed() -> bool:
        answer: Any = ControlClient(home.data).get("peers")
        return peer_id in {peer["peer_id"] for peer in answer["peers"]}

    assert wait_until(listed, PATIENCE_SECONDS)
    assert wait_until(lambda: _record_of(data).sampled > 0, PATIENCE_SECONDS)


@contextmanager
def _running_testnet(tmp_path: Path) -> Iterator[ChildProcess]:
    argv = sapo(
        "testnet", "up", "--nodes", "2", "--attackers", "0", "--epochs", "20", "--epoch-seconds", "30",
        "--report", str(tmp_path / "report"), "--data-dir", str(tmp_path / "net"),
    )  # fmt: skip
    testnet = spawn("testnet", argv, folder=tmp_path, log=tmp_path / "testnet.txt")
    try:
        yield testnet
    finally:
        stop([testnet], PATIENCE_SECONDS)


def _has_state(layout: Layout) -> bool:
    try:
        state.read(layout)
    except SapoError:
        return False
    return True


def _record(home: NodeHome) -> NodeRecord:
    return read_record(home.name, read_events(home.data.events))


def _record_of(data: DataDir) -> NodeRecord:
    return read_record("latecomer", read_events(data.events))


def _steps(home: NodeHome) -> int:
    return len(_record(home).steps)


def _await_event(home: NodeHome, wanted: Callable[[Event], bool], *, skip: int) -> Event:
    """Return an event of a node, after skipping the given number of earlier ones."""
    found: list[Event] = []

    def look() -> bool:
        found[:] = [event for event in read_events(home.data.events) if wanted(event)]
        return len(found) > skip

    assert wait_until(look, PATIENCE_SECONDS)
    return found[skip]
