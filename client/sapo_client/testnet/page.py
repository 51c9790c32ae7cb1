"""The page over all nodes of a testnet, served by a process of its own.

    python -m sapo_client.testnet.page DIRECTORY

It reads only the directory, so it shows running and finished swarms, and costs the nodes as much as their own
pages do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import trio

from sapo_client import keystore
from sapo_client.dashboard.many import AttackMark, ManyNodes, ShownNode
from sapo_client.dashboard.serve import serve_pages
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.control_client import ControlClient
from sapo_client.paths import DataDir
from sapo_client.testnet import plan
from sapo_client.testnet.plan import Layout, NodeHome, Settings
from sapo_client.testnet.processes import ChildProcess, python, sapo, spawn, wait_until

READY_SECONDS: Final = 60.0
"""Seconds until the process has its port, on a machine that starts a whole swarm meanwhile."""


def page_data(layout: Layout) -> DataDir:
    """Return the directory of the page's token and address."""
    return DataDir(layout.root / "page")


def start_page(layout: Layout, *, tied: bool) -> ChildProcess:
    """Start the process that serves the page."""
    data = page_data(layout).create()
    argv = python("sapo_client.testnet.page", str(layout.root))
    return spawn("page", argv, folder=data.root, log=data.root / "log.txt", tied=tied)


def page_link(layout: Layout) -> str:
    """Return a link that opens the page once; waits until the process has its port.

    Raises:
        SapoError: it does not answer (exit code 5).
    """
    data = page_data(layout)
    wait_until(data.control_address.exists, READY_SECONDS)
    return ControlClient(data).page_link()


def start_control(layout: Layout, settings: Settings, *, tied: bool) -> ChildProcess:
    """Start a node with the swarm's initial model and settings of its learner, which shares nothing."""
    home: NodeHome = layout.node(plan.CONTROL_NAME)
    identity = keystore.create(home.identity, None)
    learner = f'model = "{settings.model_of(0)}"\nseed = {settings.seed + settings.nodes}\nthreads = 1\n'
    home.config.write_text(
        f'identity = "{identity.path}"\ndata_dir = "{home.data.root}"\n\n[learner]\n{learner}',
        encoding="utf-8",
    )
    argv = sapo("join", "--alone", "--config", str(home.config))
    return spawn(home.name, argv, folder=home.root, log=home.log, tied=tied)


def serve_page(layout: Layout, show: Callable[[str], None] | None = None) -> None:
    """Serve the page until interrupted.

    Args:
        show: takes a link that opens the page once.

    Raises:
        SapoError: there is no testnet in the directory (exit code 8).
    """
    if not layout.manifest.exists():
        raise SapoError(
            f"there is no testnet in {layout.root}",
            hint="start one with `sapo testnet up --keep`, or name its directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
    source = ManyNodes(_title(layout), lambda: shown_nodes(layout), lambda: attack_marks(layout))
    trio.run(serve_pages, page_data(layout), source, show)


def shown_nodes(layout: Layout) -> Sequence[ShownNode]:
    """Return the nodes of a testnet in the order of their names, the control last."""
    folders = sorted((layout.root / "nodes").glob("*/data"))
    nodes = [ShownNode(folder.parent.name, DataDir(folder)) for folder in folders]
    control_home = layout.node(plan.CONTROL_NAME)
    others = [node for node in nodes if node.name != plan.CONTROL_NAME]
    alone = (
        [ShownNode(plan.CONTROL_NAME, control_home.data, "control")]
        if control_home.data.root.exists()
        else []
    )
    return [*others, *alone]


def attack_marks(layout: Layout) -> Sequence[AttackMark]:
    """Return the attackers' messages from their log files; an incomplete last line is skipped."""
    marks = []
    for log in sorted((layout.root / "attackers").glob("*/attacks.jsonl")):
        for line in log.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            marks.append(AttackMark(entry["time"], f"{entry['attacker']}: {entry['kind'].replace('_', ' ')}"))
    return sorted(marks, key=lambda mark: mark.at)


def _title(layout: Layout) -> str:
    name = json.loads(layout.manifest.read_text(encoding="utf-8")).get("name")
    return str(name or layout.root.name)


if __name__ == "__main__":
    serve_page(Layout(Path(sys.argv[1])))
