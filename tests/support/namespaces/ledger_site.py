"""A chain in the small network: the contracts of a swarm, and a site with its endpoint."""

from __future__ import annotations

import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from support.namespaces import kernel

from sapo_client.keystore import Identity
from sapo_client.testnet import bringup
from sapo_client.testnet.ledger_view import ChainView, EpochRow
from sapo_client.testnet.node_record import NodeRecord
from sapo_client.testnet.plan import Layout, Settings
from sapo_client.testnet.processes import stop
from sapo_protocol.manifest import Manifest
from sapo_protocol.suite import Suite

CHAIN_PORT: Final = 8545
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Chain:
    """The embedded chain while it runs, outside all namespaces.

    Attributes:
        url: of its endpoint there.
    """

    url: str
    layout: Layout
    deployer: Identity

    def found(
        self,
        identities: Sequence[Identity],
        listen: Sequence[str],
        auditors: Sequence[int],
        suite: Suite,
        epoch_seconds: int,
    ) -> Manifest:
        """Deploy the contracts, give every account coins, and write the manifest; return it.

        Args:
            listen: each node's multiaddr without a peer id; the first is to be met at.
            auditors: numbers of the nodes that audit.
        """
        count = len(identities)
        settings = Settings(
            nodes=count,
            attackers=0,
            epochs=0,
            epoch_seconds=epoch_seconds,
            seed=0,
            directory=None,
            report=self.layout.root,
            auditors=len(auditors),
        )
        members = tuple(
            bringup.Member(
                self.layout.node(str(number)), identities[number], listen[number], number in auditors
            )
            for number in range(count)
        )
        setup = bringup.found(settings, self.layout, suite, self.url, self.deployer, members)
        bringup.fund(setup, self.deployer, identities)
        return setup.manifest

    def epochs(self, manifest: Manifest, records: Sequence[NodeRecord]) -> list[EpochRow]:
        """Return every final epoch, with the points that the auditors' own tallies lead to."""
        return ChainView(self.url, manifest).epochs(records)


@contextmanager
def chain(folder: Path) -> Iterator[Chain]:
    """Yield a new chain whose files are in a folder; end it afterwards."""
    layout = Layout(folder)
    layout.chain.mkdir(parents=True)
    child, url, deployer = bringup.start_chain(layout, tied=True)
    try:
        yield Chain(url, layout, deployer)
    finally:
        stop([child], _STOP_SECONDS)


class _Forwarder(socketserver.ThreadingTCPServer):
    """Passes connections to a namespace's port on to an endpoint outside it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, namespace: str, url: str) -> None:
        super().__init__(("0.0.0.0", CHAIN_PORT), _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = kernel.open_listener(namespace, "0.0.0.0", CHAIN_PORT)
        parts = urlsplit(url)
        self.target = (str(parts.hostname), int(parts.port or 80))


class _Connection(socketserver.BaseRequestHandler):
    server: _Forwarder

    def handle(self) -> None:
        with suppress(OSError), ExitStack() as stack:
            onward = stack.enter_context(socket.create_connection(self.server.target))
            back = threading.Thread(target=_pump, args=(onward, self.request), daemon=True)
            back.start()
            _pump(self.request, onward)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what one socket receives until it ends."""
    with suppress(OSError), source.makefile("rb", buffering=0) as read, target.makefile("wb", 0) as write:
        shutil.copyfileobj(read, write)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def reached_in(namespace: str, url: str) -> Iterator[None]:
    """Let an endpoint outside all namespaces be reached at ``CHAIN_PORT`` of one."""
    server = _Forwarder(namespace, url)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
