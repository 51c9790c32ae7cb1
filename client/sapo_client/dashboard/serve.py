"""A page of its own: served by a process that is no node, until a signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from sapo_client.dashboard.pages import DashboardPages, PageSource
from sapo_client.observe import control
from sapo_client.observe.control_client import ControlClient, keep_token
from sapo_client.paths import DataDir


async def serve_pages(data: DataDir, source: PageSource, show: Callable[[str], None] | None = None) -> None:
    """Serve a page until the process is interrupted.

    Args:
        data: directory of the page's token and address; it is created.
        show: takes a link that opens the page once.
    """
    data.create()
    async with trio.open_nursery() as nursery:
        stop = nursery.cancel_scope.cancel
        handlers = control.Handlers(
            reports={},
            is_draining=lambda: False,
            stop=lambda _: stop(),
            pages=DashboardPages(source, keep_token(data)),
        )
        nursery.start_soon(_cancel_at_signal, nursery.cancel_scope)
        await nursery.start(control.serve, data, handlers)
        if show is not None:
            show(await trio.to_thread.run_sync(ControlClient(data).page_link))


async def _cancel_at_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
