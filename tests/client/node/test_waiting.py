"""Repeated starts: causes, intervals, reports, and their end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.nodes import Home, manifest_of, until

from sapo_client.errors import SapoError
from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.locks import Lock
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.bootstrap import NextRun, live
from sapo_client.node.roles import Roles, StartedNode
from sapo_client.node.waiting import Waiting
from sapo_client.observe.findings import FindingCode, HealthFinding
from sapo_client.observe.service_manager import ServiceManager, service_manager
from sapo_client.observe.starting import AwaitedStart, StartingNode, starting_node
from sapo_client.paths import DataDir
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

AWAY = SapoError("no server", hint="start it", exit_code=5, transient=True, finding="server_away")
FULL = SapoError("no space", hint="free some", exit_code=8, transient=True, finding="disk_full")
TYPO = SapoError("no such model", hint="correct it", exit_code=3)
TRIED_AGAIN = ": the start is tried again at least once a minute, Ctrl-C ends it"


class WaitingTrial:
    """A start on a clock that only its pauses turn on."""

    def __init__(self, folder: Path, manager: ServiceManager | None = None) -> None:
        self.lines: list[str] = []
        self.pauses: list[float] = []
        self.told: list[HealthFinding] = []
        self.shown: list[StartingNode | None] = []
        self.data = DataDir(folder)
        self.waiting = Waiting(
            Lock.of_directory(self.data),
            told=self.told.append,
            show=self.lines.append,
            manager=manager,
            sleep=self._sleep,
            clock=lambda: sum(self.pauses),
        )

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.shown.append(starting_node(self.data))

    def start(self, *errors: SapoError) -> str:
        """Start a node that fails so before it starts."""
        left = list(errors)

        def attempt() -> str:
            if left:
                raise left.pop(0)
            return "ended"

        return self.waiting.through(attempt)


def test_a_start_is_retried_until_it_succeeds_and_reported_every_few_minutes(tmp_path: Path) -> None:
    trial = WaitingTrial(tmp_path)
    assert trial.start(*[AWAY] * 9, FULL) == "ended"
    assert trial.pauses == [5, 10, 20, 40, 60, 60, 60, 60, 60, 60]
    server = (
        "error: the node has not started: no server (server_away); see that the server runs, and that"
        f" learner.endpoint is its address{TRIED_AGAIN}"
    )
    space = f"error: the node has not started: no space (disk_full); free some space{TRIED_AGAIN}"
    over = "over: the node has not started: no server (server_away)"
    assert trial.lines == [server, server, space, over]
    assert [finding.line() for finding in trial.told] == [server] * 9 + [space]


def test_the_lock_states_the_reason_for_waiting_at_all_times(tmp_path: Path) -> None:
    trial = WaitingTrial(tmp_path)
    in_tries: list[StartingNode | None] = []

    def attempt() -> str:
        in_tries.append(starting_node(trial.data))
        with trial.waiting.lock.held():
            in_tries.append(starting_node(trial.data))
            if len(in_tries) == 2:
                raise AWAY
            if len(in_tries) == 4:
                raise FULL
        return "ended"

    assert trial.waiting.through(attempt) == "ended"
    name = f"this process (pid {os.getpid()})"
    server = StartingNode(trial.data, name, AwaitedStart(FindingCode.SERVER_AWAY, "no server"), True)
    space = StartingNode(trial.data, name, AwaitedStart(FindingCode.DISK_FULL, "no space"), True)
    assert trial.shown == [server, space]
    assert in_tries == [None, StartingNode(trial.data, name, None), server, server, space, space]
    assert starting_node(trial.data) is None, "the lock is free again"


def test_a_waiting_process_reports_that_another_uses_the_directory(tmp_path: Path) -> None:
    trial = WaitingTrial(tmp_path)
    with Lock.of_directory(trial.data).held(), pytest.raises(SapoError, match="is already in use by"):
        trial.start(AWAY)
    assert trial.pauses == []


@pytest.mark.parametrize("error", [TYPO, LedgerUnavailable(["http://chain"], "down")])
def test_a_permanent_error_ends_the_start(error: SapoError, tmp_path: Path) -> None:
    trial = WaitingTrial(tmp_path)
    with pytest.raises(SapoError) as caught:
        trial.start(AWAY, error)
    assert caught.value is error
    assert trial.pauses == [5]


def test_a_node_stopped_by_a_full_disk_after_its_start_continues(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """It was told to begin with a new policy, which it does once."""
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    trial, opened_with = WaitingTrial(home.data.root), list[RunOptions]()
    following = NextRun(RunOptions(fresh=True, steps=2))

    def started(_node: StartedNode) -> None:
        if len(opened_with) == 1:
            with Path("/dev/full").open("wb", buffering=0) as device:
                device.write(b"x")  # the device takes nothing, as the system says of a full disk

    roles = trial.waiting.roles(Roles(started=started))

    def opened(options: RunOptions) -> NodeApp:
        opened_with.append(options)
        return home.node(MemoryHub(), options=options, roles=roles)

    def start() -> int:
        with trial.waiting.lock.held():
            return trio.run(live, opened, following, home.data.root)

    assert trial.waiting.through(start) == 0
    assert opened_with == [RunOptions(fresh=True, steps=2), RunOptions(fresh=False, steps=2)]
    assert [event["step"] for event in home.events("step")] == [1, 2]
    why = f"the node has stopped: the disk is full: free space in {home.data.root} (disk_full)"
    assert trial.lines == [f"error: {why}; free some space{TRIED_AGAIN}", f"over: {why}"]


async def test_a_failed_node_continues_with_its_remaining_steps(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    node = home.node(MemoryHub(), options=RunOptions(fresh=True, steps=9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await until(lambda: home.events("step"))
        nursery.cancel_scope.cancel()
    assert node.left == RunOptions(steps=9 - node.step)


async def test_a_node_that_is_stopped_while_its_terms_change_is_not_opened_again(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """Its last round may take minutes, in which the operator stops it."""
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    node = home.node(MemoryHub())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await until(lambda: home.events("step"))
        node._reopen()
        assert node.left == RunOptions()
        await home.stop()
    assert [node.goes_on, node.left, node.exit_code] == [None, None, 0]
    assert [event["why"] for event in home.events("stopped")] == ["sapo stop"]


async def test_a_node_that_has_completed_its_steps_is_not_restarted(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    node = home.node(MemoryHub(), options=RunOptions(steps=1))
    assert (await node.run(), node.left) == (0, None)


def test_the_service_manager_is_notified(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        WaitingTrial(tmp_path, service_manager({"NOTIFY_SOCKET": str(address)})).start(FULL)
        status, patience, fed = manager.recv(4096).decode().splitlines()
    assert status.startswith("STATUS=error: the node has not started: no space (disk_full)")
    assert patience == "EXTEND_TIMEOUT_USEC=900000000"
    assert fed == "WATCHDOG=1"


@pytest.fixture
def without_server(policy: Path, weekdays: Suite, tmp_path: Path) -> Callable[[], NodeApp]:
    """Return a function that opens a node whose server does not answer."""
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    home.learner = {"backend": "vllm", "endpoint": "http://127.0.0.1:9"}
    return lambda: home.node(MemoryHub())


async def test_a_node_that_is_stopped_during_a_repeated_start_ends(
    without_server: Callable[[], NodeApp], tmp_path: Path
) -> None:
    def opened(_options: RunOptions) -> NodeApp:
        node = without_server()
        node.request_stop()
        return node

    assert await live(opened, NextRun(RunOptions()), tmp_path) == 0
    with pytest.raises(ExceptionGroup) as caught:
        await live(lambda _options: without_server(), NextRun(RunOptions()), tmp_path)
    assert caught.group_contains(SapoError, match="does not answer")
