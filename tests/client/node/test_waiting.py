"""Starts that are tried again: which, how often, whom it is told, and when it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes import Home, manifest_of

from sapo_client.errors import SapoError
from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.bootstrap import live
from sapo_client.node.roles import Roles
from sapo_client.node.waiting import Waiting
from sapo_client.observe.service_manager import ServiceManager, service_manager
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite

AWAY = SapoError("no server", hint="start it", exit_code=5, transient=True, finding="server_away")
FULL = SapoError("no space", hint="free some", exit_code=8, transient=True, finding="disk_full")
TYPO = SapoError("no such model", hint="correct it", exit_code=3)
TRIED_AGAIN = ": the start is tried again at least once a minute, Ctrl-C ends it"


class WaitingTrial:
    """A start on a clock that only its pauses turn on."""

    def __init__(self, manager: ServiceManager | None = None) -> None:
        self.lines: list[str] = []
        self.pauses: list[float] = []
        self.waiting = Waiting(
            show=self.lines.append,
            manager=manager,
            sleep=self.pauses.append,
            clock=lambda: sum(self.pauses),
        )

    def start(self, *errors: SapoError) -> str:
        """Start a node that fails so before it starts."""
        left = list(errors)

        def attempt() -> str:
            if left:
                raise left.pop(0)
            return "ended"

        return self.waiting.through(attempt)


def test_a_start_is_tried_until_it_succeeds_and_told_every_few_minutes() -> None:
    trial = WaitingTrial()
    assert trial.start(*[AWAY] * 9, FULL) == "ended"
    assert trial.pauses == [5, 10, 20, 40, 60, 60, 60, 60, 60, 60]
    server = (
        "error: the node has not started: no server (server_away); see that the server runs, and that"
        f" learner.endpoint is its address{TRIED_AGAIN}"
    )
    space = f"error: the node has not started: no space (disk_full); free some space{TRIED_AGAIN}"
    over = "over: the node has not started: no server (server_away)"
    assert trial.lines == [server, server, space, over]


@pytest.mark.parametrize("error", [TYPO, LedgerUnavailable(["http://chain"], "down")])
def test_what_does_not_pass_by_itself_ends_the_start(error: SapoError) -> None:
    trial = WaitingTrial()
    with pytest.raises(SapoError) as caught:
        trial.start(AWAY, error)
    assert caught.value is error
    assert trial.pauses == [5]


async def test_a_node_that_has_started_is_not_started_anew(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """Its options may say to begin with a new policy."""
    trial = WaitingTrial()
    node = Home(tmp_path, 1, manifest_of(weekdays), policy).node(MemoryHub())
    told: list[object] = []
    trial.waiting.roles(Roles(started=told.append)).started(node)
    assert told == [node]
    with pytest.raises(SapoError, match="no space"):
        trial.start(FULL)
    assert trial.pauses == []


def test_the_service_manager_is_told(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        WaitingTrial(service_manager({"NOTIFY_SOCKET": str(address)})).start(FULL)
        status, patience = manager.recv(4096).decode().splitlines()
    assert status.startswith("STATUS=error: the node has not started: no space (disk_full)")
    assert patience == "EXTEND_TIMEOUT_USEC=900000000"


@pytest.fixture
def without_server(policy: Path, weekdays: Suite, tmp_path: Path) -> Callable[[], NodeApp]:
    """Return a function that opens a node whose server does not answer."""
    home = Home(tmp_path, 1, manifest_of(weekdays), policy)
    home.learner = {"backend": "vllm", "endpoint": "http://127.0.0.1:9"}
    return lambda: home.node(MemoryHub())


async def test_a_node_that_is_stopped_during_such_a_start_ends(without_server: Callable[[], NodeApp]) -> None:
    def opened(_options: RunOptions) -> NodeApp:
        node = without_server()
        node.request_stop()
        return node

    assert await live(opened, RunOptions()) == 0
    with pytest.raises(ExceptionGroup) as caught:
        await live(lambda _options: without_server(), RunOptions())
    assert caught.group_contains(SapoError, match="does not answer")
