"""Units of service managers: their text, systemd's verdict, and the watchdog driven by health."""

from __future__ import annotations

import plistlib
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from sapo_client.config import SERVICE_START_SECONDS
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import WAITED_FOR, CallFacts
from sapo_client.observe.service_manager import service_manager
from sapo_client.services.examples import files
from sapo_client.services.manager import InstalledUnit
from sapo_client.services.units import ServiceTerms, launchd_agent, systemd_unit

DEPLOY = Path(__file__).parents[3] / "client" / "deploy"


@pytest.mark.parametrize("name", sorted(files()))
def test_the_files_in_the_tree_are_those_of_the_program(name: str) -> None:
    fresh = "renew them with: .venv/bin/python -m sapo_client.services.examples client/deploy"
    assert (DEPLOY / name).read_text(encoding="utf-8") == files()[name], fresh


def test_arguments_of_a_command_line_are_quoted() -> None:
    terms = ServiceTerms("n", ("/bin/sapo", "a b", "50%", "$HOME", 'say "x"', "back\\slash"), Path("/d"))
    [line] = [line for line in systemd_unit(terms).splitlines() if line.startswith("ExecStart=")]
    assert line == 'ExecStart=/bin/sapo "a b" 50%% $$HOME "say \\"x\\"" "back\\\\slash"'
    assert plistlib.loads(launchd_agent(terms).encode())["ProgramArguments"] == list(terms.command)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("user", [None, "root"])
def test_systemd_accepts_the_unit(tmp_path: Path, user: str | None) -> None:
    command = (shutil.which("true") or "/bin/true", "join", "--data-dir", "/tmp/a folder/with % signs")
    terms = ServiceTerms("sapo-test", command, Path("/tmp/a folder"), Path("/etc/secret"), user)
    unit = tmp_path / "sapo-test.service"
    unit.write_text(systemd_unit(terms))
    scope = "--user" if user is None else "--system"
    done = subprocess.run(
        ["systemd-analyze", scope, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    mine = [line for line in done.stderr.splitlines() if "sapo-test" in line]
    assert mine == [], done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_units_exposure_is_low() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(DEPLOY / "systemd" / "sapo.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    exposure = float(done.stdout.rpartition("service: ")[2].split()[0])
    assert exposure < 3.5, done.stdout


def test_the_watchdog_is_notified_while_there_is_progress(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        node = service_manager({"NOTIFY_SOCKET": str(address)})

        def told(*codes: FindingCode, call: CallFacts | None = None) -> str:
            findings = [HealthFinding(code, FindingLevel.ERROR, f"{code}.", "do it") for code in codes]
            node.assessed(findings, call)
            return manager.recv(4096).decode()

        node.ready()
        assert manager.recv(4096) == b"READY=1"
        assert told() == "STATUS=nothing is wrong\nWATCHDOG=1"
        silent = told(FindingCode.CHAIN_SILENT)
        assert silent == "STATUS=error: chain_silent. (chain_silent); do it\nWATCHDOG=1"
        no_round = "STATUS=error: no_round. (no_round); do it"
        assert told(FindingCode.NO_ROUND) == no_round
        working, hung = (CallFacts("shadow", seconds, 100.0, 2000.0) for seconds in (1999.0, 2000.0))
        assert told(FindingCode.NO_ROUND, call=working) == no_round + "\nWATCHDOG=1"
        assert told(FindingCode.NO_ROUND, call=hung) == no_round
        for waits in WAITED_FOR:
            waiting = told(waits, FindingCode.NO_ROUND)
            assert waiting == f"STATUS=error: {waits}. ({waits}); do it\nWATCHDOG=1", (
                "a restart does not help"
            )
        node.starts_later(HealthFinding(FindingCode.DISK_FULL, FindingLevel.ERROR, "full.", "do it"))
        patience = f"EXTEND_TIMEOUT_USEC={SERVICE_START_SECONDS}000000"
        said = f"STATUS=error: full. (disk_full); do it\n{patience}\nWATCHDOG=1"
        assert manager.recv(4096).decode() == said
    service_manager({}).ready()
    service_manager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_a_service_manager_that_does_not_read_halts_no_node(tmp_path: Path) -> None:
    """It is told within the next interval that the node is ready, which systemd waits for."""
    address = tmp_path / "notify"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others,
    ):
        manager.bind(str(address))
        others.setblocking(False)
        others.connect(str(address))
        with suppress(BlockingIOError):
            while True:
                others.send(b"STATUS=as many as it takes")
        node = service_manager({"NOTIFY_SOCKET": str(address)})

        def write() -> None:
            node.ready()
            node.assessed((), None)

        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        writes.join(timeout=30)
        assert not writes.is_alive(), "it waits for room"
        manager.setblocking(False)
        with suppress(BlockingIOError):
            while manager.recv(4096) == b"STATUS=as many as it takes":
                pass
        for expected in (
            b"READY=1\nSTATUS=nothing is wrong\nWATCHDOG=1",
            b"STATUS=nothing is wrong\nWATCHDOG=1",
        ):
            node.assessed((), None)
            assert manager.recv(4096) == expected


def test_units_are_written_to_the_folder_of_their_service_manager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert InstalledUnit("a").path == tmp_path / ".config/systemd/user/a.service"
    assert InstalledUnit("a", whole_machine=True).path == Path("/etc/systemd/system/a.service")
    mac = InstalledUnit("a", platform="darwin")
    assert mac.path == tmp_path / "Library/LaunchAgents/org.sapo-swarm.a.plist"
