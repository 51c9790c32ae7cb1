"""`sapo watch`: the running node's page in the terminal."""

from __future__ import annotations

import typer

from sapo_client.cli.options import Common, command


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(watch)


def watch(common: Common) -> None:
    """Watch the running node in the terminal: health, curves, live decisions, rollouts, peers, ledger, log.

    `q` quits; the node continues.
    """
    from sapo_client import extras
    from sapo_client.observe.control_client import ControlClient

    extras.require(extras.WATCH, instead="use sapo dashboard or sapo status")
    data = common.data()
    ControlClient(data).health()  # a node that is down is an error here, not an empty screen
    from sapo_client.cli.live.screen import WatchApp
    from sapo_client.dashboard.client import PageClient

    WatchApp(PageClient(data).view).run()
