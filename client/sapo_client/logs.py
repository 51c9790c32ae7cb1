"""Logging: to standard error according to `-v`, and to a file in the data directory.

Importing this package configures nothing. A command calls `configure` once; a node adds its file with
`logging_to` while it holds its data directory. Modules write to `logging.getLogger(__name__)`. libp2p reports
each lost connection as an error with a stack, so it is logged at debug level only; other libraries are not.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sapo_client.paths import PRIVATE_DIRECTORY_MODE

OWN_LOGGERS: Final = ("sapo_client", "sapo_verification")
LIBP2P: Final = "libp2p"

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
"""Level by the number of `-v`. Commands print warnings themselves, so none is logged without `-v`."""

_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"

_SECRETS: Final = (
    # An RPC endpoint's key lies in its user part, its path or its query.
    (re.compile(r"\b((?:https?|wss?)://)(?:[^\s/'\"]*@)?([^\s/?#'\"<>()]+)[/?#][^\s'\"<>)]+"), r"\1\2/..."),
    (re.compile(r"\b((?:https?|wss?)://)[^\s/'\"]*@"), r"\1"),
    (re.compile(r"(\bwith url: )\S+"), r"\1..."),  # as the HTTP library words its errors
)


class _Formatter(logging.Formatter):
    """One line per record except for stack traces, without secrets of URLs and control characters."""

    def __init__(self) -> None:
        super().__init__(_FORMAT, "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        text = without_secrets(super().format(record))
        return "".join(sign if sign in "\n\t" else _printable(sign) for sign in text)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        text = super().formatMessage(record)
        return text if text.isprintable() else "".join(map(_printable, text))


def configure(verbosity: int, *, quiet: bool = False) -> None:
    """Log to standard error according to a command's flags; a later call replaces an earlier one.

    Args:
        verbosity: how often `-v` was given.
        quiet: whether `-q` was given, which takes precedence.
    """
    for name in (*OWN_LOGGERS, LIBP2P):
        for handler in [one for one in logging.getLogger(name).handlers if one.name == __name__]:
            _detach(handler)
    shown = verbosity > 0 and not quiet
    # Without any handler the library would print warnings by itself.
    handler = logging.StreamHandler(sys.stderr) if shown else logging.NullHandler()
    handler.name = __name__
    _attach(handler, _LEVELS[min(verbosity, len(_LEVELS) - 1)] if shown else logging.WARNING)


@contextmanager
def logging_to(path: Path, *, level: str, max_bytes: int, keep: int) -> Iterator[None]:
    """Log to a file, readable only by its owner, inside the context.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        max_bytes: size at which the file is rotated.
        keep: rotated files kept.
    """
    from logging.handlers import RotatingFileHandler  # sockets and pickles: only a node needs it

    class Handler(RotatingFileHandler):
        """Ignores write errors, since the node's health reports a full disk, without a stack trace per
        line."""

        def emit(self, record: logging.LogRecord) -> None:
            """Write a record; into a new file if the open one was deleted, as to free space, or moved."""
            if self.stream is not None and not is_in_place(self.stream.fileno(), Path(self.baseFilename)):
                self.stream.close()
                self.stream = None  # the library opens it
            super().emit(record)

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
            if not isinstance(sys.exception(), OSError):
                super().handleError(record)

    path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    handler = Handler(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")
    _attach(handler, logging.getLevelNamesMapping()[level.upper()])
    try:
        yield
    finally:
        _detach(handler)
        handler.close()


def is_in_place(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at its path: who frees space deletes it, other programs move it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
    except OSError:  # the folder cannot be searched: nothing better could be opened there
        return True


def without_secrets(text: str) -> str:
    """Return a text whose URLs name a scheme, a host and a port only."""
    for pattern, kept in _SECRETS:
        text = pattern.sub(kept, text)
    return text


def _attach(handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(_Formatter())
    for name in (*OWN_LOGGERS, LIBP2P):
        logger = logging.getLogger(name)
        if name != LIBP2P or level <= logging.DEBUG:
            logger.addHandler(handler)
        _settle_level(logger)


def _detach(handler: logging.Handler) -> None:
    for name in (*OWN_LOGGERS, LIBP2P):
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        _settle_level(logger)


def _settle_level(logger: logging.Logger) -> None:
    """Set a logger's level to the lowest one of our handlers."""
    silent = logging.CRITICAL if logger.name == LIBP2P else logging.NOTSET
    ours = (handler for handler in logger.handlers if isinstance(handler.formatter, _Formatter))
    logger.setLevel(min((handler.level for handler in ours), default=silent))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
