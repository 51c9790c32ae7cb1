"""Child processes: their exit is noticed, they are stopped in order, and none is left behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_client.testnet import processes
from sapo_client.testnet.processes import (
    PORTS,
    ChildProcess,
    _started_by_ps,
    free_ports,
    sapo,
    spawn,
    started_at,
    stop,
    wait_until,
)

PATIENCE_SECONDS = 30.0
FOREVER = "import time\nwhile True: time.sleep(60)"
STUBBORN = (
    f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n{FOREVER}"
)


def child(tmp_path: Path, code: str) -> ChildProcess:
    return spawn("child", (sys.executable, "-c", code), folder=tmp_path, log=tmp_path / "log.txt")


def test_a_child_that_dies_leaves_its_code_and_log(tmp_path: Path) -> None:
    one = child(tmp_path, "import sys; print('no room', file=sys.stderr); sys.exit(3)")
    assert wait_until(lambda: one.exit_code() is not None, PATIENCE_SECONDS)
    assert (one.exit_code(), one.log_tail()) == (3, "no room")


def test_a_child_that_handles_sigterm_ends_itself(tmp_path: Path) -> None:
    code = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        f"print('ready', flush=True)\n{FOREVER}"
    )
    one = child(tmp_path, code)
    assert wait_until(lambda: one.log_tail() == "ready", PATIENCE_SECONDS)
    stop([one], PATIENCE_SECONDS)
    assert one.exit_code() == 7


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    one = child(tmp_path, STUBBORN)
    assert wait_until(lambda: one.log_tail() == "ready", PATIENCE_SECONDS)
    stop([one], 0.2)
    assert one.exit_code() == -signal.SIGKILL


def test_a_childs_own_children_go_with_it(tmp_path: Path) -> None:
    code = (
        f"import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])\n"
        f"print(p.pid, flush=True)\n{FOREVER}"
    )
    one = child(tmp_path, code)
    assert wait_until(lambda: "ready" in one.log_tail(), PATIENCE_SECONDS)
    pid = int(one.log_tail().split()[0])
    stop([one], PATIENCE_SECONDS)
    assert wait_until(lambda: started_at(pid) is None, PATIENCE_SECONDS)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties children to their parent")
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom sapo_client.testnet.processes import spawn\n"
        f"one = spawn('x', (sys.executable, '-c', {FOREVER!r}), folder=Path('.'), log=Path('log.txt'))\n"
        f"print(one.pid, flush=True)\n{FOREVER}"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: started_at(pid) is None, PATIENCE_SECONDS)


def test_the_users_settings_do_not_reach_the_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPO_LEARNER__MODEL", "mine")
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path))
    one = child(tmp_path, "import os; print(sorted(n for n in os.environ if n.startswith('SAPO_')))")
    assert wait_until(lambda: one.exit_code() is not None, PATIENCE_SECONDS)
    assert one.log_tail() == "['SAPO_LOCKS_DIR']"


def test_a_process_is_known_by_pid_and_start() -> None:
    assert started_at(os.getpid()) == started_at(os.getpid())
    assert started_at(os.getpid()) is not None
    assert started_at(2**22 + 1) is None


def test_a_process_is_known_where_there_is_no_proc_too(tmp_path: Path) -> None:
    one = child(tmp_path, FOREVER)
    started = _started_by_ps(one.pid)
    assert started is not None
    assert started == _started_by_ps(one.pid)
    one.process.kill()
    assert wait_until(lambda: _started_by_ps(one.pid) is None, PATIENCE_SECONDS)
    one.process.wait()


def test_sapo_is_the_one_beside_this_interpreter() -> None:
    argv = sapo("--version")
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sapo ")


def test_free_ports_are_different_and_none_that_the_system_gives_by_itself() -> None:
    ports = free_ports(64)
    assert len(set(ports)) == 64
    assert set(ports) <= set(PORTS)
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        assert given.getsockname()[1] not in PORTS


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    few = free_ports(3)
    monkeypatch.setattr(processes, "PORTS", few)
    with socket.socket() as used:
        used.bind(("127.0.0.1", few[1]))
        assert sorted(free_ports(2)) == sorted([few[0], few[2]])
        with pytest.raises(OSError, match="of 3 ports 2 are free, not 3"):
            free_ports(3)
