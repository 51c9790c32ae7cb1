"""The supervisor on a mock clock: restarts, errors that stop the node, and reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from support.file_limit import largest_file
from trio.testing import MockClock

from sapo_client.errors import SapoError
from sapo_client.full_disk import disk_full
from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.node.policy_events import PolicyEvents
from sapo_client.node.runtime.supervisor import (
    FIRST_PAUSE_SECONDS,
    HEALTHY_SECONDS,
    MAX_PAUSE_SECONDS,
    Supervisor,
    find_sapo_error,
)
from sapo_client.observe.events import EventLog, read_events
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.health import INTERVAL_SECONDS, WAITED_SECONDS, PolicyEvent

TOLD = SapoError("the disk is full", hint="free some space", exit_code=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def supervisor(path: Path) -> Supervisor:
    return Supervisor(EventLog(path))


def failing(
    times: int, lasts: Callable[[int], float] = lambda _: 0.0
) -> tuple[list[float], Callable[[], Awaitable[None]]]:
    """Return the start times of a service, and the service, which fails so often and then returns."""
    starts: list[float] = []

    async def service() -> None:
        starts.append(trio.current_time())
        await trio.sleep(lasts(len(starts)))
        if len(starts) <= times:
            raise ValueError(f"fault {len(starts)}")

    return starts, service


def pauses(starts: list[float]) -> list[float]:
    return [round(after - before, 3) for before, after in pairwise(starts)]


async def test_a_failing_service_is_tried_again_ever_more_slowly(
    supervisor: Supervisor, path: Path, autojump_clock: MockClock
) -> None:
    starts, service = failing(9)
    await supervisor.keep("node", service)
    assert pauses(starts) == [0.5, 1, 2, 4, 8, 16, 32, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]
    written = [(e["event"], e["service"], e["error"]) for e in read_events(path)]
    assert written == [("service_failed", "node", f"ValueError('fault {n}')") for n in range(1, 10)]
    assert all("in service" in str(event["trace"]) for event in read_events(path))


async def test_healthy_periods_reset_the_restart_pause(
    supervisor: Supervisor, autojump_clock: MockClock
) -> None:
    healthy = HEALTHY_SECONDS + 1
    starts, service = failing(4, lambda number: healthy if number == 3 else 0.0)
    await supervisor.keep("node", service)
    assert pauses(starts) == [0.5, 1, healthy + FIRST_PAUSE_SECONDS, 1]


@pytest.mark.parametrize(
    "error",
    [TOLD, ExceptionGroup("nursery", [ExceptionGroup("nursery", [ValueError(), TOLD])])],
    ids=["plain", "in groups"],
)
async def test_a_sapo_error_stops_the_node(supervisor: Supervisor, path: Path, error: Exception) -> None:
    async def service() -> None:
        raise error

    with pytest.raises(SapoError) as caught:
        await supervisor.keep("node", service)
    assert caught.value is TOLD
    assert list(read_events(path)) == []
    assert disk_full(ExceptionGroup("nursery", [caught.value]), None) is None  # it is in its own cause


async def test_a_chain_that_is_away_is_waited_for(
    supervisor: Supervisor, path: Path, autojump_clock: MockClock
) -> None:
    outages = [LedgerUnavailable(["http://chain"], "down")] * 2

    async def service() -> None:
        if outages:
            raise ExceptionGroup("nursery", [outages.pop()])

    await supervisor.keep("ledger", service)
    assert [event["service"] for event in read_events(path)] == ["ledger", "ledger"]


async def write_to_full_disk() -> None:
    """Write to the device that takes nothing, as the system says of a full disk."""
    with Path("/dev/full").open("wb", buffering=0) as device:
        device.write(b"x")


async def fill_database() -> None:
    """Write more into a database than it may hold, as SQLite says of a full disk."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.executescript("CREATE TABLE a (b); CREATE TABLE c (d);")


@pytest.mark.parametrize("write", [write_to_full_disk, fill_database])
async def test_a_full_disk_is_waited_for_and_reported_as_such(
    supervisor: Supervisor, path: Path, autojump_clock: MockClock, write: Callable[[], Awaitable[None]]
) -> None:
    starts, until_third = failing(2)
    told = PolicyEvents(path.parent)
    supervisor._events.listen(told.note)

    async def service() -> None:
        try:
            await until_third()
        except ValueError:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)

    await supervisor.keep("rounds", service)
    assert pauses(starts) == [0.5, 1]
    text = f"the disk is full: free space in {path.parent}"
    written = [(e["transient"], e["finding"], e["told"]) for e in read_events(path)]
    assert written == [(True, "disk_full", text)] * 2
    assert told.recent() == (PolicyEvent(FindingCode.DISK_FULL, text),)
    await trio.sleep(WAITED_SECONDS + 1)
    assert told.recent() == (), "it is over once nothing fails any more"


async def test_a_full_disk_is_over_as_soon_as_there_is_space(
    supervisor: Supervisor, path: Path, autojump_clock: MockClock
) -> None:
    """The part that waits retries within a minute; the operator sees at once that the space was enough."""
    told = PolicyEvents(path.parent / "learner" / "checkpoints")
    (path.parent / "learner").mkdir()
    supervisor._events.listen(told.note)
    full = PolicyEvent(FindingCode.DISK_FULL, f"the disk is full: free space in {path.parent}")
    with largest_file(path.stat().st_size + 2**20 - 1):
        try:
            await write_to_full_disk()
        except OSError as error:
            supervisor.note_bug(error)
        assert told.recent() == (full,)
        await trio.sleep(INTERVAL_SECONDS + 1)
        assert told.recent() == (full,), "no MiB can be written"
    assert told.recent() == ()


async def test_cancellation_is_no_failure(supervisor: Supervisor, path: Path) -> None:
    with trio.move_on_after(0) as scope:
        await supervisor.keep("node", trio.sleep_forever)
    assert scope.cancelled_caught
    assert list(read_events(path)) == []


def test_an_error_in_a_callback_is_logged(supervisor: Supervisor, path: Path) -> None:
    supervisor.note_bug(KeyError("topic"))
    [event] = read_events(path)
    assert (event["service"], event["error"]) == ("callback", "KeyError('topic')")


def test_a_sapo_error_is_found_in_nested_groups() -> None:
    group = BaseExceptionGroup("outer", [KeyboardInterrupt(), ExceptionGroup("inner", [OSError(), TOLD])])
    assert find_sapo_error(group) is TOLD
    assert find_sapo_error(ExceptionGroup("inner", [OSError()])) is None
    assert find_sapo_error(ValueError()) is None


async def test_a_service_that_fails_during_the_end_is_logged_and_the_node_ends(
    supervisor: Supervisor, path: Path, autojump_clock: MockClock
) -> None:
    async def fails_when_told_to_stop() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LedgerUnavailable(["http://127.0.0.1:1"], "gone")

    async def service() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fails_when_told_to_stop)

    with trio.move_on_after(1) as life:
        await supervisor.keep("ledger", service)
    assert life.cancelled_caught
    assert [(e["event"], e["service"]) for e in read_events(path)] == [("service_failed", "ledger")]
