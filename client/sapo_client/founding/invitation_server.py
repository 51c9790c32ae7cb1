"""A swarm's invitation over HTTP, and its faucet, since a newcomer without coins cannot pay for a
transaction.

``GET /`` is answered by the invitation file, and ``POST /`` with ``{"account": "0x..."}`` by
``{"served": "0x..."}``, or by ``{"error": ...}`` and status 400 (no account), 403 (refused: served within
a day, empty, or a contract), 404 (no faucet), 502 (the chain) or 503 (too many wait). The contract limits
what it gives; a request costs the payer its gas and waits for those before it.

Whoever can connect is a stranger. A request has seconds to arrive, however it is sent, and where too many are
on their way the network with most of them loses its oldest one.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding import contracts
from sapo_client.founding.invitation import Invitation, link, to_file
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_client.swarm.addresses import network_of
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_LOG = logging.getLogger(__name__)

_MAX_BODY: Final = 1024
_SECONDS: Final = 10.0
"""In which a request has to arrive whole."""

MAX_CONNECTIONS: Final = 64
"""Whose requests have not arrived yet; each has a thread."""

MAX_WAITING: Final = 16
"""Requests for coins: they are served one after the other, and the last waits for some minutes."""


@dataclass(frozen=True, slots=True)
class FaucetAccess:
    """Access to a swarm's faucet: its contract, endpoints of its chain, and the account that pays the gas."""

    rpc_urls: Sequence[str]
    payer: LocalAccount
    contract: Account
    chain_id: int | None = None

    def check(self) -> None:
        """Raise unless the faucet is there.

        Raises:
            LedgerError: it is not, or no endpoint answers.
        """
        contracts.require_faucet(self._rpc, self.contract)

    def drip(self, receiver: Account) -> None:
        """Send coins to an account.

        Raises:
            LedgerError: the contract refuses, or the chain is away.
        """
        contracts.fund(self._rpc, self.payer, self.contract, receiver)

    @property
    def _rpc(self) -> Rpc:
        return Rpc(self.rpc_urls, chain_id=self.chain_id)


class InvitationServer:
    """A listening server; ``serve`` answers until ``close``, or until the process ends.

    Args:
        faucet: how coins are sent; none for a swarm without a chain.
        public: address under which newcomers reach it; unset: where it listens.

    Raises:
        SapoError: the address cannot be used (exit code 5).
    """

    def __init__(
        self,
        address: tuple[str, int],
        invitation: Invitation,
        *,
        faucet: FaucetAccess | None = None,
        public: str | None = None,
    ) -> None:
        try:
            self._server = _Server(address, _Handler)
        except OSError as error:
            raise SapoError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
                hint="choose another --port, or 0 for any free one",
                exit_code=ExitCode.NETWORK,
            ) from error

        host, port = self._server.server_address[:2]
        self.url: Final = public or f"http://{host!s}:{port}/"
        self._server.faucet = faucet
        served = replace(invitation, faucet=self.url if faucet else invitation.faucet)
        self._server.content = to_file(served).encode()
        self.link: Final = link(Invitation(invitation.manifest), at=self.url)

    def serve(self) -> None:
        """Answer requests until ``close`` is called, or a signal ends the process."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()

    def __enter__(self) -> InvitationServer:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.server_close()


@dataclass(frozen=True, slots=True)
class _Arriving:
    """A connection whose request is being read.

    Attributes:
        network: of whoever opened it.
        since: when it was opened, on the monotonic clock, in seconds.
    """

    network: str
    since: float


class _Server(ThreadingHTTPServer):
    """The HTTP server, with the state that its handlers share."""

    daemon_threads = True
    content = b""
    faucet: FaucetAccess | None = None

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.turn = threading.Lock()  # concurrent transactions would get the same nonce
        self.waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._guard = threading.Lock()
        self._arriving: dict[socket.socket, _Arriving] = {}

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any
    ) -> None:
        """Begin to read a request; if too many are being read, the oldest of the largest network ends."""
        if isinstance(request, socket.socket):
            with self._guard:
                self._arriving[request] = _Arriving(network_of(str(client_address[0])), time.monotonic())
                if len(self._arriving) > MAX_CONNECTIONS:
                    self._end(self._of_the_largest_network())
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End what does not arrive in time; called several times a second."""
        super().service_actions()
        before = time.monotonic() - _SECONDS
        with self._guard:
            for late in [each for each, arriving in self._arriving.items() if arriving.since < before]:
                self._end(late)

    def has_arrived(self, connection: socket.socket) -> None:
        """Let a connection stay open until it is answered: its request is here, or it is closed."""
        with self._guard:
            self._arriving.pop(connection, None)

    def _of_the_largest_network(self) -> socket.socket:
        sizes = Counter(arriving.network for arriving in self._arriving.values())
        return max(
            self._arriving, key=lambda each: sizes[self._arriving[each].network]
        )  # of equals the oldest

    def _end(self, connection: socket.socket) -> None:
        del self._arriving[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a connection that broke."""
        _LOG.info("the connection from %s broke", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS

    def finish(self) -> None:
        """Forget the connection."""
        self.server.has_arrived(self.connection)
        super().finish()

    def do_GET(self) -> None:
        """Serve the invitation."""
        self._answer(200, self.server.content)

    def do_POST(self) -> None:
        """Send coins to one newcomer."""
        if self.server.faucet is None:
            self._refuse(404, "this swarm has no faucet here")
            return
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 < size <= _MAX_BODY:
                raise ValueError("the body must be a short JSON object")
            body = self.rfile.read(size)
            self.server.has_arrived(self.connection)
            account = Account.from_hex(json.loads(body)["account"])
        except (ValueError, KeyError, TypeError, LocalProtocolError) as error:
            self._refuse(400, f'send {{"account": "0x..."}}: {error}')
            return
        if not self.server.waiting.acquire(blocking=False):
            self._refuse(503, f"{MAX_WAITING} others wait for coins; ask again in some minutes")
            return
        try:
            with self.server.turn:
                self.server.faucet.drip(account)
        except contracts.FaucetRefusal as error:
            self._refuse(403, f"{error}; {error.hint}")
        except LedgerError as error:
            self._refuse(502, str(error))
        else:
            self._answer(200, _json({"served": str(account)}))
        finally:
            self.server.waiting.release()

    def _refuse(self, status: int, why: str) -> None:
        self._answer(status, _json({"error": why}))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log a request with the other logs."""
        _LOG.info(format, *arguments)


def _json(document: dict[str, str]) -> bytes:
    return json.dumps(document).encode() + b"\n"
