"""What a command says before it computes or waits for hours: missing plots, and the link that it serves."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from support.sapo_process import SAPO, TIMEOUT_SECONDS, Run, home_in, running
from typer.testing import CliRunner

from sapo_client.cli.app import app

NEEDS_PLOTS = "needs plots; not installed: matplotlib"


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("without_matplotlib")
def test_an_experiment_says_first_what_its_report_will_need(tmp_path: Path) -> None:
    """The folder is a file, so that no run begins."""
    (tmp_path / "taken").write_text("")
    done = CliRunner().invoke(app, ["lab", "run", "--arms", "8/0", "--out", str(tmp_path / "taken" / "out")])
    assert done.stderr.splitlines()[0] == (
        "warning: `sapo lab report` will need plots: pip install 'sapo-swarm[lab]'"
    )


@pytest.mark.usefixtures("without_matplotlib")
def test_a_report_without_plots_writes_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["lab", "report", str(tmp_path)])
    assert (getattr(done.exception, "text", ""), list(tmp_path.iterdir())) == (f"this {NEEDS_PLOTS}", [])


def test_a_served_link_is_shown_once_in_a_terminal_and_alone_in_a_pipe(sapo: Run, tmp_path: Path) -> None:
    home = home_in(tmp_path)
    assert sapo("swarm", "new", "friends", "--level", "nano", "--quiet").returncode == 0
    command = [SAPO, "swarm", "serve", str(tmp_path / "friends")]
    note = "Serving until Ctrl-C. Whoever wants to join runs `sapo join` with this link:\n"
    with running(command, home) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stderr.readline(), process.stdout.readline()[:7]) == (note, "sapo://")
    screen, terminal = pty.openpty()
    with subprocess.Popen(command, env=home, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while shown.count(b"\n") < 2:
            shown += os.read(screen, 4096)
        process.kill()
        process.wait(TIMEOUT_SECONDS)
    os.close(screen)
    first, second = shown.decode().splitlines()
    assert (first, second.partition("sapo://")[0], shown.count(b"sapo://")) == (
        note.rstrip(),
        "sapo join '",
        1,
    )
