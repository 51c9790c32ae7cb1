"""`sapo dashboard`: open the running node's page in a browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sapo_client.cli.options import Common, command


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(dashboard)


def dashboard(
    common: Common,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the link without opening a browser.")
    ] = False,
) -> None:
    """Print a link to the running node's page, which works once and for five minutes, and open it.

    The page is served on this machine only. From another one, forward the port first, as in
    `ssh -L 4100:127.0.0.1:4100 HOST`, and replace the port in the link if the local one differs.
    """
    import webbrowser

    from sapo_client.observe.control_client import ControlClient

    link = ControlClient(common.data()).page_link()
    show_link(common, link)
    if not no_open and sys.stdout.isatty():
        webbrowser.open(link)


def show_link(common: Common, link: str) -> None:
    """Print a link at once: the command may go on for hours."""
    common.output.emit({"link": link}, link)
    sys.stdout.flush()
