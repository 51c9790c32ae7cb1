"""A swarm's invitation over HTTP, and its faucet, since a newcomer without coins cannot pay for a
transaction.

``GET /`` is answered by the invitation file, and ``POST /`` with ``{"account": "0x..."}`` by
``{"served": "0x..."}``, or by ``{"error": ...}`` and status 400 (no account), 403 (refused: served within
a day, empty, or a contract), 404 (no faucet) or 502 (the chain). The contract limits what it gives; a
request costs the payer its gas and waits for those before it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding import contracts
from sapo_client.founding.invitation import Invitation, link, to_file
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_LOG = logging.getLogger(__name__)

_MOST_BODY: Final = 1024
_SECONDS: Final = 10.0


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


class _Server(ThreadingHTTPServer):
    """The HTTP server, with the state that its handlers share."""

    daemon_threads = True
    content = b""
    faucet: FaucetAccess | None = None
    turn = threading.Lock()  # concurrent transactions would get the same nonce

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a connection that broke."""
        _LOG.info("the connection from %s broke", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS

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
            if not 0 < size <= _MOST_BODY:
                raise ValueError("the body must be a short JSON object")
            account = Account.from_hex(json.loads(self.rfile.read(size))["account"])
        except (ValueError, KeyError, TypeError, LocalProtocolError) as error:
            self._refuse(400, f'send {{"account": "0x..."}}: {error}')
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
