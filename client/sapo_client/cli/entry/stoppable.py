"""The start of a node, which `sapo stop` ends at every moment: while it imports, asks, opens, loads, waits.

Until the node's event loop runs, a thread looks for the request and interrupts the main thread by a signal.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sapo_client.errors import SapoError
from sapo_client.locks import Lock
from sapo_client.observe.starting import StopRequested, StopRequests
from sapo_client.paths import DataDir

_SIGNAL: Final = signal.SIGUSR1
"""Not SIGINT, which a process in the background of a script ignores."""

_LOOK_SECONDS: Final = 0.2
"""Between two looks for a request; also between two signals, of which an import may swallow one."""


class StoppableStart:
    """A start in a data directory, whose lock is held from its first moment on.

    Args:
        data: directory of the node; it may not exist yet.
    """

    def __init__(self, data: DataDir) -> None:
        self.lock: Final = Lock.of_directory(data)
        self.stops: Final = StopRequests(data, self._is_watching)
        self._data = data
        self._ended = threading.Event()
        self._ended.set()
        self._thread: threading.Thread | None = None
        self._is_asked = False
        self._has_opened = False

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Hold the lock and look for a request to stop; remove the directory if nothing began in it.

        Raises:
            StopRequested: the start was asked to stop.
            SapoError: another process uses the directory, or it cannot be created.
        """
        made = _missing(self._data.root)
        try:
            with ExitStack() as held:
                try:
                    self._data.create()
                    held.enter_context(self.lock.held())
                    self.stops.heed(self.lock)
                except SapoError as error:
                    if not error.transient:  # a full disk is waited for later
                        raise
                self._watch()
                try:
                    yield
                finally:
                    self._end()
        except KeyboardInterrupt:
            if not self._is_asked:
                raise
            self.stops.forget()
            raise StopRequested from None
        finally:
            if made and not self._has_opened:
                self._remove(made)

    def opened(self) -> None:
        """Leave the requests to the event loop of the node, whose parts exist.

        Raises:
            StopRequested: one has come before.
        """
        self._has_opened = True
        self._end()
        if self._is_asked:
            self.stops.forget()
            raise StopRequested

    def _watch(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(_SIGNAL, self._interrupt)
            self._ended.clear()
            self._thread = threading.Thread(target=self._look, name="stop requests", daemon=True)
            self._thread.start()

    def _is_watching(self) -> bool:
        return not self._ended.is_set()

    def _end(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        main = threading.main_thread().ident
        assert main is not None, "the main thread has started"
        while not self._ended.wait(_LOOK_SECONDS):
            if self.stops.is_there():
                self._is_asked = True
                signal.pthread_kill(main, _SIGNAL)

    def _interrupt(self, _number: int, _frame: object) -> None:
        if self._is_watching():
            raise KeyboardInterrupt

    def _remove(self, made: list[Path]) -> None:
        """Remove the folders that this start has made, if nothing is in them but what it begins with."""
        data = self._data
        begun = (data.lock, data.stop_request, data.manifest)
        with suppress(OSError):
            if set(data.root.iterdir()) <= set(begun):
                for path in begun:
                    path.unlink(missing_ok=True)
                for folder in made:
                    folder.rmdir()


def _missing(folder: Path) -> list[Path]:
    """Return the folder and those around it that do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
