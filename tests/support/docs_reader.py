"""A reader who types the commands of documentation pages into a shell, in a folder of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from support.sapo_process import SAPO

from sapo_client.testnet.processes import ChildProcess, spawn, stop, wait_until

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "protocol/**/*.md", "verification/**/*.md", "client/**/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts and "upstream" not in path.parts
)
"""Every page of this project, by its path from the root."""

TESTNET: Final = "docs/testnet.md"

PAGES_RUN: Final = (
    TESTNET,
    "README.md",
    "docs/operator.md",
    "docs/roles/newcomer.md",
    "docs/roles/auditor.md",
)
"""Those that ``tests/docs/test_pages_run.py`` follows."""

NOT_RUN: Final = {
    "make demo": "takes eight minutes: the demo job of continuous integration",
    "make test": "this suite",
    "make test-long": "this suite",
    "make lint": "tests/test_static.py and tests/test_architecture.py",
    "make coverage": "this suite, with another runner",
    "make fuzz": "`make fuzz-nightly`, a job of every night",
    "make faults-nightly": "a job of every night",
    "make rules-mutants": "a job of every night",
    "make contracts-test": "tests/client/ledger/test_foundry.py",
    "make contracts-mutants": "a job of every night",
    "sapo testnet up": "tests/client/testnet/test_testnet_e2e.py, with fewer epochs",
    "sapo lab run": "hours; tests/client/lab/test_lab_command.py, with a small preset",
    "sapo lab report": "tests/client/lab/test_lab_command.py",
    "sapo lab attack": "hours; tests/client/lab/test_attack_campaign.py",
    "sapo service": "changes the services of this machine; tests/client/cli/test_service_command.py",
    "cd client/deploy/docker": "needs Docker: client/deploy/docker/check.sh, a job of continuous integration",
    "docker compose": "needs Docker: client/deploy/docker/check.sh, a job of continuous integration",
    "pip install": "needs a package index; tests/client/test_plugins.py, tests/project/test_packages.py",
    "SAPO_SAMPLER__TASK_SAMPLER=weakest": "needs the plug-in's package; tests/client/test_plugins.py",
    "sapo join --identity key --alone --config tracked.toml": "needs trackio; observe/test_tracker.py",
    "SAPO_WRITE_MONTH=1": "an hour; tests/client/node/test_operator_month.py, in `make test-long`",
    "sapo swarm deploy swarm --rpc https": "as in docs/testnet.md, with another level: test_tasks_options.py",
}
"""First words of a line, and why ``tests/docs/test_pages_run.py`` does not run it."""

PATIENCE_SECONDS: Final = 300.0
"""A few epochs of half a minute, on a busy machine."""


def page_lines(page: str) -> list[str]:
    """Return the lines of a page's shell blocks, without comments; continued lines are joined.

    Args:
        page: its path from the root of the project.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```(?:sh|bash|console)\n(.*?)^```$", text)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in lines) if line]


def run_lines(page: str) -> list[str]:
    """Return the lines of a page that ``tests/docs/test_pages_run.py`` runs, if it follows the page."""
    return [line for line in page_lines(page) if not line.startswith(tuple(NOT_RUN))]


class Reader:
    """Runs lines of pages in a shell, in a folder of its own; `sapo join` goes on in the background.

    Attributes:
        folder: the working directory.
        here: text of a page, and its replacement on this machine.
        environment: the shell's variables.
    """

    def __init__(self, folder: Path, here: Mapping[str, str], **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.here = dict(here)
        self.environment = {
            "HOME": str(folder),
            "PATH": f"{Path(SAPO).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SAPO_LOCKS_DIR": str(folder / "locks"),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        self.nodes: list[ChildProcess] = []
        self._logs: list[Path] = []

    def type(self, line: str) -> str:
        """Run a line as it stands on the page; return what it printed on standard output."""
        line = self.meant(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = value
            return ""
        if re.match(r"([A-Z_0-9]+=\S+ )*sapo join ", line):
            self._start(line)
            return ""
        return self.run(line)

    def meant(self, line: str) -> str:
        """Return a line with this machine's addresses, endpoints and names in place of the page's."""
        for written, meant in self.here.items():
            line = line.replace(written, meant)
        return line

    def run(self, line: str, exit_code: int = 0) -> str:
        """Run a line; return its standard output, with standard error behind it if it is to fail."""
        done = self._done(line)
        assert done.returncode == exit_code, f"{line}\n{done.stdout}{done.stderr}{self.log_tail()}"
        return done.stdout + (done.stderr if exit_code else "")

    def json(self, line: str) -> dict[str, Any]:
        """Run a line with `--json`; return the object that it prints, empty if it fails."""
        assert all(node.exit_code() is None for node in self.nodes), self.log_tail()
        done = self._done(f"{line} --json")
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def _done(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def _start(self, line: str) -> None:
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        argv = ["env", "-i", *settings, "bash", "-c", f"exec env {line}"]
        self._logs.append(self.folder / f"node-{len(self._logs)}.txt")
        self.nodes.append(spawn(line, argv, folder=self.folder, log=self._logs[-1]))

    def wait_for_rounds(self, rounds: int = 1) -> None:
        """Wait until the node that was started last has shown a number of rounds."""
        log, node = self._logs[-1], self.nodes[-1]

        def shown() -> bool:
            text = log.read_text(encoding="utf-8", errors="replace")
            return node.exit_code() is not None or len(re.findall(r"(?m)^round ", text)) >= rounds

        assert wait_until(shown, PATIENCE_SECONDS), self.log_tail()
        assert node.exit_code() is None, self.log_tail()

    def stop_node(self) -> None:
        """Press Ctrl-C in the terminal of the node that was started last, and wait for its end."""
        node = self.nodes.pop()
        os.kill(node.pid, signal.SIGINT)
        assert wait_until(lambda: node.exit_code() is not None, PATIENCE_SECONDS), node.log_tail()
        assert node.exit_code() == 130, node.log_tail()

    def log_tail(self) -> str:
        """Return the last lines of all nodes."""
        return "\n".join(f"{node.name}:\n{node.log_tail()}" for node in self.nodes)

    @contextmanager
    def at_work(self) -> Iterator[Reader]:
        """Stop the started nodes on every exit."""
        try:
            yield self
        finally:
            stop(self.nodes, PATIENCE_SECONDS)
