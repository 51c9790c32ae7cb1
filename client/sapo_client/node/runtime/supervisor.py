"""The supervisor: restarts failed services, reports every failure, and stops the node on a ``SapoError``.

This is the only place in the node with a broad ``except``.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from sapo_client.errors import SapoError
from sapo_client.full_disk import disk_full
from sapo_client.observe.events import EventLog

Service = Callable[[], Awaitable[None]]
"""A function that runs as long as the node."""

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 60.0
"""Longest pause: a failing service is restarted for ever, at least once a minute."""

HEALTHY_SECONDS: Final = 120.0
"""After a run of at least this length the next pause is the shortest."""


class Supervisor:
    """Runner of a node's services."""

    def __init__(self, events: EventLog) -> None:
        self._events = events

    async def keep(self, name: str, service: Service) -> None:
        """Run a service until it returns, and restart it when it fails.

        Raises:
            SapoError: the operator has to act; the service cannot recover by itself.
        """
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            started = trio.current_time()
            try:
                await service()
                return
            except Exception as error:  # noqa: BLE001  # the one place
                self._report(name, error)
            except BaseExceptionGroup as group:  # such as a failure during cancellation
                failed, ended = group.split(Exception)
                if failed is not None:
                    self._report(name, failed)
                if ended is not None:
                    raise ended from None
            if trio.current_time() - started > HEALTHY_SECONDS:
                pause_seconds = FIRST_PAUSE_SECONDS
            await trio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)

    def note_bug(self, error: Exception) -> None:
        """Report an error in a callback of this program: a message was lost, but no service stopped."""
        self._write("callback", error, waits_for=disk_full(error, self._events.folder))

    def _report(self, name: str, error: Exception) -> None:
        found = find_sapo_error(error) or disk_full(error, self._events.folder)
        if found is not None and not found.transient:
            raise found from (None if found is error else error)
        self._write(name, error, waits_for=found)

    def _write(self, service: str, error: Exception, *, waits_for: SapoError | None = None) -> None:
        trace = "".join(traceback.format_exception(error))
        self._events.write(
            "service_failed",
            service=service,
            error=repr(error),
            trace=trace,
            transient=waits_for is not None,
            finding=None if waits_for is None else waits_for.finding,
            told=None if waits_for is None else waits_for.text,
        )


def find_sapo_error(error: BaseException) -> SapoError | None:
    """Return the ``SapoError`` in an exception, at any depth of exception groups; None if there is none."""
    if isinstance(error, SapoError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := find_sapo_error(inner))), None)
    return None
