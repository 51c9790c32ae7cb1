"""The jail, tested from inside: hostile code runs in the child of a real pool and fails."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support import hostile_scorers
from support.jail_processes import ENVIRONMENT
from trio.testing import MockClock

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Suite
from sapo_protocol.tasks import Task
from sapo_verification.jail import probe as jail_probe
from sapo_verification.jail.checkers import (
    GRACE_SECONDS,
    RETRY_SECONDS,
    START_SECONDS,
    CheckerPool,
    CheckFailed,
    Failure,
)
from sapo_verification.jail.launch import command, describe, environment
from sapo_verification.jail.worker import MAX_CALLS
from sapo_verification.suites.catalogue import REASONING_GYM, family

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")

HOSTILE = replace(family("base_conversion", "nano"), scorer="hostile/1", max_completion_bytes=512)
SUITE = Suite(REASONING_GYM, (HOSTILE,), Digest(bytes(32)))
TASK = Task(0, 1)


def hostile_pool() -> CheckerPool:
    return CheckerPool(SUITE, deadline_seconds=0.5, scorer_modules=("support.hostile_scorers",))


async def commit(pool: CheckerPool, crime: str) -> float | Failure:
    """Carry out a hostile action in the jail; return its reward, or why there is none."""
    try:
        return (await pool.check(TASK, [crime.encode()])).rewards[0]
    except CheckFailed as failed:
        return failed.reason


REFUSED: list[float | Failure] = [0.0, Failure.CRASH]  # denied by Python or the kernel, or killed for trying
DENIED = ("create_file", "read_file", "delete_file", "executable_memory", "raise_limit", "allocate")
DEADLY = (
    *("open_socket", "open_unix_socket", "fork", "run_program", "signal_parent", "trace_itself", "ring"),
    *("hidden_file", "exit_in_python", "exit_at_once", "abort", "wild_pointer", "recurse"),
)
MALFORMED = (
    "announce_too_much",
    "speak_nonsense",
    "pay_itself_more",
    "pay_more_completions",
    "guess_the_token",
    "blame_the_node",
)
OUTCOMES: dict[str, list[float | Failure]] = {
    **dict.fromkeys(hostile_scorers.ACTS, REFUSED),
    **{crime: [0.0] for crime in DENIED},
    **{crime: [Failure.CRASH] for crime in DEADLY},
    **{crime: [Failure.MALFORMED] for crime in MALFORMED},
    "spin": [Failure.TIMEOUT],
}
for elsewhere in ("prepare_the_next_reply", "stop_reading", "block", "dawdle"):
    del OUTCOMES[elsewhere]  # test_worker_process.py has the calls after these, and those that wait


async def test_every_forbidden_action_fails_and_the_pool_continues(tmp_path: Path) -> None:
    key, booty = tmp_path / "key", tmp_path / "booty"
    key.write_text("secret")
    tmp_path.chmod(0o777)
    key.chmod(0o666)
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        for crime, outcomes in OUTCOMES.items():
            target = booty if crime.startswith(("create", "run_shell")) else key
            assert await commit(pool, f"{crime}:{target}") in outcomes, crime
            assert await commit(pool, "honest") == 1.0, crime
        nursery.cancel_scope.cancel()
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert key.read_text() == "secret"


CRIMES_THAT_WORK_OUTSIDE = [
    *(
        "create_file",
        "create_file_in_python",
        "read_file",
        "read_file_in_python",
        "read_file_by_another_call",
    ),
    *("delete_file", "open_socket", "open_unix_socket", "open_socket_in_python", "fork", "fork_in_python"),
    *("run_shell_in_python", "signal_parent", "trace_itself", "handle_of_parent", "executable_memory"),
    *("hidden_file", "import_a_module"),
]


@pytest.mark.parametrize("crime", CRIMES_THAT_WORK_OUTSIDE)
def test_without_the_jail_the_same_actions_succeed(crime: str, tmp_path: Path) -> None:
    """The control: an action that fails everywhere would prove nothing."""
    target = tmp_path / "file"
    if not crime.startswith(("create", "run_shell")):
        target.write_text("secret")
    python = (
        f"from support.hostile_scorers import ACTS; import os; os._exit(not ACTS[{crime!r}]({str(target)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", python], env=environment(), check=False)
    assert done.returncode == 0


async def test_a_reply_written_before_its_request_is_refused() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        forged = await pool.check(TASK, [b"prepare_the_next_reply"])
        assert forged.prompt == "x"  # the result of this call does not matter
        assert await commit(pool, "honest") is Failure.MALFORMED
        assert await commit(pool, "honest") == 1.0
        nursery.cancel_scope.cancel()


async def test_a_check_without_enough_processor_time_is_repeated_once() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (child,) = grandchildren()
        os.kill(child, signal.SIGSTOP)  # as far as it can tell, the node gives it no processor time
        assert await commit(pool, "honest") == 1.0
        assert await commit(pool, "block") is Failure.NODE_BUSY
        assert await commit(pool, "honest") == 1.0
        nursery.cancel_scope.cancel()


async def test_a_stalled_worker_is_replaced_and_its_check_repeated(
    mock_clock: MockClock,
) -> None:
    """The answers never reach the worker's own code, so it is the node that had no time for it."""
    mock_clock.rate = 1.0
    earned: list[float | Failure] = []
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (worker,) = children_of(os.getpid())
        os.kill(worker, signal.SIGSTOP)
        async with trio.open_nursery() as callers:

            async def ask() -> None:
                earned.append(await commit(pool, "honest"))

            callers.start_soon(ask)
            while worker in children_of(os.getpid()):
                mock_clock.jump(GRACE_SECONDS)
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert earned == [1.0]


async def test_a_child_lives_for_a_bounded_number_of_calls() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        children = set()
        for _ in range(MAX_CALLS + 2):
            await pool.prompt(TASK)
            children |= grandchildren()
        assert len(children) == 2
        nursery.cancel_scope.cancel()


def grandchildren() -> set[int]:
    """Return the jailed processes under this one."""
    return {grandchild for child in children_of(os.getpid()) for grandchild in children_of(child)}


def children_of(parent: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def is_running(process: int) -> bool:
    """Whether a process runs, and is not just waiting to be reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_child_runs_as_nobody_without_privileges_under_a_filter() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(hostile_pool().run)
        (child,) = grandchildren()
        lines = Path(f"/proc/{child}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["Seccomp"] == "2"
        assert status["NoNewPrivs"] == "1"
        assert status["CapEff"] == "0" * 16
        assert status["Uid"].split() != ["0"] * 4
        nursery.cancel_scope.cancel()


async def test_killing_a_worker_ends_its_child_and_costs_nothing_but_a_restart() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (worker,), (child,) = children_of(os.getpid()), grandchildren()
        os.kill(worker, signal.SIGKILL)
        assert await commit(pool, "honest") in (Failure.CRASH, 1.0)
        assert await commit(pool, "honest") == 1.0
        assert not is_running(child)
        nursery.cancel_scope.cancel()


async def replacement_of(worker: int) -> int:
    """Return the worker that replaces another one, once its program runs."""
    while True:
        for child in children_of(os.getpid()) - {worker}:
            if b"serve" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        await trio.sleep(0.01)


async def test_a_replacement_that_does_not_start_in_time_is_tried_again(mock_clock: MockClock) -> None:
    """A busy machine may take more than two minutes to start one; that ended the whole node."""
    mock_clock.rate = 1.0
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (worker,) = children_of(os.getpid())
        os.kill(worker, signal.SIGKILL)
        assert await commit(pool, "honest") is Failure.CRASH
        late = await replacement_of(worker)
        os.kill(late, signal.SIGSTOP)
        while late in children_of(os.getpid()):
            mock_clock.jump(START_SECONDS)
            await trio.sleep(0.01)
        while not children_of(os.getpid()):
            mock_clock.jump(RETRY_SECONDS)
            await trio.sleep(0.01)
        assert await commit(pool, "honest") == 1.0
        nursery.cancel_scope.cancel()


async def test_a_replacement_for_which_there_are_no_files_is_tried_again(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mock_clock.rate = 1.0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (worker,) = children_of(os.getpid())
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            os.kill(worker, signal.SIGKILL)
            assert await commit(pool, "honest") is Failure.CRASH
            while "a checker worker did not start (Too many open files)" not in caplog.text:
                await trio.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        mock_clock.jump(RETRY_SECONDS)
        assert await commit(pool, "honest") == 1.0
        nursery.cancel_scope.cancel()


async def test_an_interrupt_of_the_process_group_does_not_end_the_workers() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        (worker,), (child,) = children_of(os.getpid()), grandchildren()
        for process in (worker, child):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(process, number)
        assert await commit(pool, "honest") == 1.0
        assert (children_of(os.getpid()), grandchildren()) == ({worker}, {child})
        nursery.cancel_scope.cancel()


async def test_closing_the_pool_leaves_no_process() -> None:
    async with trio.open_nursery() as nursery:
        pool = hostile_pool()
        await nursery.start(pool.run)
        before = children_of(os.getpid()) | grandchildren()
        nursery.cancel_scope.cancel()
    assert len(before) == 2
    assert not children_of(os.getpid()) & before


@pytest.mark.parametrize("modules", [("no_such_module",), ()], ids=["no module", "no scorer"])
async def test_a_worker_that_cannot_start_is_a_local_error(modules: tuple[str, ...]) -> None:
    pool = CheckerPool(SUITE, scorer_modules=modules)
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
    assert caught.group_contains(LocalProtocolError, match="did not start")


def test_every_restriction_that_is_described_works_and_was_tried() -> None:
    restrictions = describe()
    assert [restriction.name for restriction in restrictions] == list(jail_probe.ACTS)
    assert all(restriction.works for restriction in restrictions), restrictions


ELSEWHERE = """
import json, sys
from sapo_verification.jail import probe as jail_probe
sys.platform = "elsewhere"
print(json.dumps([restriction.name for restriction in jail_probe.probe() if not restriction.works]))
"""
"""Another Unix, as far as the jail can tell: no Landlock, no seccomp, no prctl."""


def test_the_portable_layers_alone_stop_all_but_programs_and_signals_among_processes_of_one_user() -> None:
    """An interpreter that everybody may run begins, but opens no file, not even its libraries."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], env=ENVIRONMENT, capture_output=True, check=True)
    program = Path(sys.executable).resolve()
    anybody_runs_it = all(path.stat().st_mode & stat.S_IXOTH for path in (program, *program.parents))
    as_root = ["run a program"] if anybody_runs_it else []
    expected = as_root if os.geteuid() == 0 else ["run a program", "signal another process"]
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("name", [name for name in jail_probe.ACTS if name != "take a gigabyte of memory"])
def test_the_probe_reports_a_forbidden_action_that_succeeds(name: str) -> None:
    """The control: outside the jail each action succeeds, except that memory may be short."""
    python = f"from sapo_verification.jail.probe import ACTS; ACTS[{name!r}]()"
    done = subprocess.run([sys.executable, "-c", python], env=ENVIRONMENT, check=False)
    assert done.returncode == (1 if name == "run a program" else 0)  # it has no pipe to report to


def test_an_unknown_command_is_refused() -> None:
    done = subprocess.run(command("dance"), env=ENVIRONMENT, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"usage: ")


def test_the_result_of_the_probe_is_printed_as_json() -> None:
    done = subprocess.run(command("restrictions"), env=ENVIRONMENT, capture_output=True, check=True)
    assert [restriction["name"] for restriction in json.loads(done.stdout)] == list(jail_probe.ACTS)
