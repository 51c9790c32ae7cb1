"""The process that communicates with one router through miniupnpc and prints one line with the result.

miniupnpc is written in C, trusts the length that a router states, and waits without limit for slow data. So
it runs with little memory, no files, no privileges, and a parent with a time limit. Called as::

    python -m sapo_client.swarm.router.igd map URL HOST PORT EXTERNAL_PORT
    python -m sapo_client.swarm.router.igd unmap URL EXTERNAL_PORT

HOST and PORT are those at which the node listens; HOST 0.0.0.0 stands for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import miniupnpc

from sapo_client.swarm.router.answers import host_of, ip4
from sapo_verification.jail import landlock

LEASE_SECONDS: Final = 3600
"""Lease of the mapping, after which a router removes it if a node ended without doing so."""

_MEMORY_BYTES: Final = 64 * 2**20  # beyond what Python has already mapped; descriptions have some kilobytes
_CPU_SECONDS: Final = 10
_NOBODY: Final = 65534
_NO_NEW_PRIVILEGES: Final = 38
_MAX_DETAIL: Final = 60

_TAKEN: Final = "ConflictInMappingEntry"
_ONLY_FOR_EVER: Final = "OnlyPermanentLeasesSupported"
_OTHER_PORTS: Final = 3
"""Ports that are tried where another machine has the wanted one."""


class _RefusedError(Exception):
    """The router refused."""


class _UnusableError(Exception):
    """The answer is not that of a router."""


def main() -> None:
    """Run the command of the command line."""
    action, url, *rest = sys.argv[1:]
    confine()
    try:
        router = _open(url)
        if action == "unmap":
            _ask(router.deleteportmapping, int(rest[0]), "TCP")
            line = "unmapped"
        else:
            line = _map(router, rest[0], int(rest[1]), int(rest[2]))
    except _RefusedError as error:
        line = f"refused {_message(error)}"
    except _UnusableError as error:
        line = f"unusable {_message(error)}"
    print(line, flush=True)


def confine() -> None:
    """Give up files, rights and memory for good; what a system does not have is left out."""
    mapped_pages = 2**18
    with contextlib.suppress(OSError):
        mapped_pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    max_bytes = mapped_pages * resource.getpagesize() + _MEMORY_BYTES
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    for limit, most in (
        (resource.RLIMIT_AS, max_bytes),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, most))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        landlock.install(files_only=True)


def _open(url: str) -> miniupnpc.UPnP:
    """Return the router whose description is at a URL.

    The description names the URL that is asked for everything else: it must be the router's own too.
    """
    router = miniupnpc.UPnP()
    try:
        control = _ask(router.selectigd, url)
    except _RefusedError as error:
        raise _UnusableError(error) from error
    if not control or host_of(control) != host_of(url):
        raise _UnusableError("its description names no service of its own")
    return router


def _map(router: miniupnpc.UPnP, host: str, port: int, wanted: int) -> str:
    if host not in {"0.0.0.0", router.lanaddr}:  # noqa: S104  compared, never bound
        raise _UnusableError("it is in another network than the address to listen on")
    try:
        external = ip4(_ask(router.externalipaddress)) or "unknown"
    except _RefusedError:
        external = "unknown"
    refusal = _RefusedError(_TAKEN)
    for external_port in _ports(wanted):
        try:
            lease = _add(router, external_port, port)
        except _RefusedError as error:
            refusal = error
            if str(error) != _TAKEN:
                break
        else:
            return f"mapped {external_port} {lease} {external}"
    raise refusal


def _ports(wanted: int) -> Iterator[int]:
    yield wanted
    yield from random.sample(range(20_000, 60_000), _OTHER_PORTS)


def _add(router: miniupnpc.UPnP, external_port: int, port: int) -> int:
    """Have a port forwarded, and return for how many seconds; 0 where the router knows no end."""
    mapping = (external_port, "TCP", router.lanaddr, port, "sapo", "")
    for lease in (LEASE_SECONDS, 0):
        try:
            _ask(router.addportmapping, *mapping, lease)
        except _RefusedError as error:
            if str(error) != _ONLY_FOR_EVER or not lease:
                raise
        else:
            return lease
    raise AssertionError("the second try returns or raises")


def _ask(call: Callable[..., object], *arguments: object) -> str:
    try:
        return str(call(*arguments))
    except Exception as error:  # the library raises no other class
        if str(error).startswith("Miniupnpc "):
            raise _UnusableError(error) from error
        raise _RefusedError(error) from error


def _message(error: Exception) -> str:
    """Return an error's text in letters, digits, spaces and hyphens alone."""
    kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign == "-") else " " for sign in str(error))
    return " ".join(kept.split())[:_MAX_DETAIL].strip() or "without a reason"


if __name__ == "__main__":
    main()
