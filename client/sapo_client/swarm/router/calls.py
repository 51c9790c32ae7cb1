"""Requests to one router, in a process with a time limit whose output is parsed as untrusted."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final, Protocol

import trio

from sapo_client.swarm.router.answers import (
    MAX_LINE_BYTES,
    MapReply,
    RouterState,
    RouterView,
    host_of,
    parse_line,
)
from sapo_client.swarm.router.ssdp import SearchLimits, search

CALL_SECONDS: Final = 20.0
"""Time limit for one router: a few requests, each of which may take five seconds."""


class Routers(Protocol):
    """The routers of the local network."""

    async def find(self) -> tuple[str, ...]:
        """Return the URLs of their descriptions; none if there is no network."""

    async def map(self, url: str, host: str, port: int, external_port: int) -> MapReply:
        """Ask one to forward a TCP port to this node, which listens at `host` and `port`."""

    async def unmap(self, url: str, external_port: int) -> None:
        """Ask one to forward that port no longer, whatever it answers."""


class UpnpRouters:
    """Routers that are found by SSDP and asked by miniupnpc."""

    def __init__(self, limits: SearchLimits | None = None, call_seconds: float = CALL_SECONDS) -> None:
        self._limits = limits or SearchLimits()
        self._call_seconds = call_seconds

    async def find(self) -> tuple[str, ...]:
        """Return the URLs of their descriptions; none if there is no network."""
        try:
            return await search(self._limits)
        except OSError:
            return ()

    async def map(self, url: str, host: str, port: int, external_port: int) -> MapReply:
        """Ask one to forward a TCP port to this node, which listens at `host` and `port`."""
        line = await self._ask("map", url, host, str(port), str(external_port))
        router = host_of(url) or ""
        reply = parse_line(line, router)
        if reply is None:
            detail = "its response is too long, too slow or not a router's"
            return MapReply(RouterView(RouterState.UNUSABLE, router, detail=detail))
        return reply

    async def unmap(self, url: str, external_port: int) -> None:
        """Ask one to forward that port no longer, whatever it answers."""
        await self._ask("unmap", url, str(external_port))

    async def _ask(self, *words: str) -> bytes:
        """Return the line that the process writes; nothing if it does not end in time."""
        line = b""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-s", "-m", "sapo_client.swarm.router.igd", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "LC_ALL": "C"},
            cwd="/",
        )
        assert process.stdout is not None
        try:
            with trio.move_on_after(self._call_seconds):
                while len(line) <= MAX_LINE_BYTES and (chunk := await process.stdout.receive_some(512)):
                    line += chunk
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdout.aclose()
        return line
