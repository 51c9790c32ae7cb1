"""`sapo stop` of a process whose start waits, and which serves no control API."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from support.sapo_process import SAPO, Run, running

from sapo_client.errors import SapoError
from sapo_client.locks import Lock
from sapo_client.node.waiting import Waiting
from sapo_client.observe.control_client import ControlClient, NodeSilent
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.starting import AwaitedStart, StopRequested, StopRequests
from sapo_client.paths import DataDir

AWAY = SapoError("no server", hint="start it", exit_code=5, transient=True, finding="server_away")


class StoppableTrial:
    """A start that always waits, with what happens during its first pause."""

    def __init__(self, folder: Path) -> None:
        self.data = DataDir(folder).create()
        self.slept: list[float] = []
        self.tries = 0
        self.answers: list[object] = []
        self.asks_after_seconds = 2.0
        self.waiting = Waiting(
            Lock.of_directory(self.data),
            stops=StopRequests(self.data),
            show=lambda _: None,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if sum(self.slept) == self.asks_after_seconds:
            self.answers.append(ControlClient(self.data).stop(finish=True))

    def start(self) -> None:
        self.tries += 1
        raise AWAY


def test_a_start_that_waits_ends_within_a_second_of_the_request(tmp_path: Path) -> None:
    trial = StoppableTrial(tmp_path / "node")
    with pytest.raises(StopRequested):
        trial.waiting.through(trial.start)
    assert (trial.tries, trial.slept) == (1, [1.0, 1.0])
    assert trial.answers == [{"stopping": True, "finish": False}]
    assert not trial.data.stop_request.exists()


def test_a_request_that_an_earlier_process_did_not_see_ends_no_other(tmp_path: Path) -> None:
    trial = StoppableTrial(tmp_path / "node")
    StopRequests(trial.data).ask()
    trial.asks_after_seconds = 7.0
    with pytest.raises(StopRequested):
        trial.waiting.through(trial.start)
    assert (trial.tries, sum(trial.slept)) == (2, 7.0)


def test_no_stop_request_is_written_for_a_process_that_does_not_heed_it(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "node").create()
    held = Lock.of_directory(data)
    with held.held(), pytest.raises(NodeSilent, match="a node is starting in"):
        ControlClient(data).stop(finish=False)
    with pytest.raises(NodeSilent, match="no node is running in"):
        ControlClient(data).stop(finish=False)
    assert not data.stop_request.exists()


def test_a_stop_request_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "node").create()
    data.stop_request.symlink_to(tmp_path / "nowhere" / "file")
    held = Lock.of_directory(data)
    with held.held():
        held.note(AwaitedStart(FindingCode.DISK_FULL, "the disk is full").to_note())
        with pytest.raises(SapoError) as caught:
            ControlClient(data).stop(finish=False)
    assert caught.value.text.startswith("cannot ask the node that starts to stop: ")
    assert caught.value.hint == (
        "press Ctrl-C where it runs, or end its process (kill), which `sapo status` names"
    )


def test_sapo_stop_ends_a_command_that_waits(sapo: Run, home: dict[str, str], tmp_path: Path) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    folder = tmp_path / "node"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{unused.getsockname()[1]}"
        uses = {"SAPO_LEARNER__BACKEND": "vllm", "SAPO_LEARNER__ENDPOINT": server}
        words = [SAPO, "join", "--alone", "--identity", "key", "--data-dir", str(folder)]
        with running(words, home | uses) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("error: the node has not started: ")
            done = sapo("stop", "--json", "--data-dir", folder)
            _, errors = process.communicate()
    assert (done.returncode, json.loads(done.stdout)) == (0, {"stopping": True, "finish": False})
    assert (process.returncode, errors) == (0, "stopped by `sapo stop` before it started\n")
    assert sapo("stop", "--data-dir", folder).returncode == 5
