"""One RPC endpoint: its requests, its pauses after timeouts, and its status."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import urlsplit

import requests
from eth_abi.exceptions import DecodingError
from web3 import Web3
from web3.exceptions import BadResponseFormat, TooManyRequests, Web3RPCError

from sapo_client.ledger.answers import MAX_ANSWER_BYTES, BadAnswer, StrictProvider

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_SECONDS: Final = 15
"""Timeout: more than a busy public endpoint needs for a range of logs; callers wait in a thread."""

_FIRST_REST_SECONDS: Final = 1.0
_LONGEST_REST_SECONDS: Final = 300.0
"""Longest pause after timeouts: one attempt in five minutes."""

_UNREACHABLE: Final = (
    requests.RequestException,
    ConnectionError,
    TimeoutError,
    BadResponseFormat,
    TooManyRequests,
    BadAnswer,
    DecodingError,
)
"""Failures of the endpoint. A refusal by the chain itself is an answer."""


_LIMIT_EXCEEDED: Final = -32005
"""The code of EIP-1474 with which providers refuse further requests; some also results that are too long."""

_LIMITED: Final = "it refuses further requests for now: too many were made"


class Unanswered(Exception):
    """An endpoint did not answer; the text states how."""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """Status of an endpoint.

    Attributes:
        name: its address without path and password, which may hold a secret.
        head: number of the last block that it reported; none before its first answer.
        trouble: why it is passed over at the moment.
        disagreements: answers that a majority denied, or that left no majority.
        on_wrong_chain: whether the trouble is that it serves another chain.
    """

    name: str
    head: int | None
    trouble: str | None
    disagreements: int
    on_wrong_chain: bool = False


class RpcEndpoint:
    """An endpoint that is paused after each timeout, twice as long as the last time.

    Attributes:
        head: number of the last block that it reported.
        disagreements: counted by the code that compares its answers.
    """

    def __init__(
        self, url: str, web3: Web3, clock: Callable[[], float], report: Callable[[str], None]
    ) -> None:
        self.name = _without_secrets(url)
        self.head: int | None = None
        self.disagreements = 0
        self._web3 = web3
        self._clock = clock
        self._report = report
        self._chain_id: int | None = None
        self._wrong_chain: str | None = None
        self._silence: str | None = None
        self._stale: str | None = None
        self._denied: set[str] = set()
        self._rest_seconds = _FIRST_REST_SECONDS
        self._rests_until = float("-inf")

    @property
    def trouble(self) -> str | None:
        """Return why it is not used, if it is not."""
        return self._wrong_chain or self._silence or self._stale

    @property
    def on_wrong_chain(self) -> bool:
        """Whether it serves another chain, so that its answers are ignored."""
        return self._wrong_chain is not None

    @property
    def may_be_asked(self) -> bool:
        """Whether it may be queried now."""
        return not self.on_wrong_chain and not self.rests

    @property
    def is_stale(self) -> bool:
        """Whether it has fallen behind the chain."""
        return self._stale is not None

    @property
    def rests(self) -> bool:
        """Whether it is paused after a timeout."""
        return self._clock() < self._rests_until

    @property
    def status(self) -> EndpointStatus:
        """Return its status."""
        return EndpointStatus(
            self.name, self.head, self.trouble, self.disagreements, on_wrong_chain=self.on_wrong_chain
        )

    def ask(self, question: Callable[[Web3], T]) -> T:
        """Return its answer.

        Raises:
            Unanswered: it did not give one.
        """
        try:
            answer = question(self._web3)
        except (*_UNREACHABLE, Web3RPCError) as error:
            if (reason := _reason(error)) is None:
                raise
            self._fell_silent(reason)
            raise Unanswered(reason) from error
        self._answered()
        return answer

    def check_chain(self, wanted: int | None, *, again: bool = False) -> None:
        """Check once, and again after every timeout, which chain it serves.

        Raises:
            Unanswered: it did not answer.
        """
        if wanted is None or (self._chain_id is not None and not again):
            return
        self._chain_id = self.ask(lambda web3: int(web3.eth.chain_id))
        trouble = f"it serves chain {self._chain_id}, the manifest names {wanted}"
        self._wrong_chain = self._reported(self._wrong_chain, trouble if self._chain_id != wanted else None)

    def note_lag(self, blocks: int | None) -> None:
        """Record that it is so many blocks behind the chain, or is not."""
        was, self._stale = self._stale, None if blocks is None else f"it is {blocks} blocks behind"
        if (was is None) != (self._stale is None):
            self._reported(was, self._stale)

    def disagreed(self, text: str) -> None:
        """Count an answer that a majority contradicts, and report its kind once."""
        self.disagreements += 1
        if text not in self._denied:
            self._denied.add(text)
            self._report(f"{self.name}: {text}")

    def _answered(self) -> None:
        self._silence = self._reported(self._silence, None)
        self._rest_seconds, self._rests_until = _FIRST_REST_SECONDS, float("-inf")

    def _fell_silent(self, reason: str) -> None:
        self._chain_id = None  # another server behind the address may answer next time
        self._silence = self._reported(self._silence, f"no answer ({reason})")
        if self.rests:  # the only endpoint is asked all the same, every second: its pause is no longer for it
            return
        _LOG.info("%s: no answer (%s); it rests for %.0f s", self.name, reason, self._rest_seconds)
        self._rests_until = self._clock() + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS)

    def _reported(self, before: str | None, trouble: str | None) -> str | None:
        if trouble != before:
            self._report(f"{self.name}: {trouble or 'works again'}")
        return trouble


def _reason(error: Exception) -> str | None:
    """Return why an endpoint gave no answer; None for a refusal by the chain, which is an answer."""
    if isinstance(error, BadAnswer):
        return str(error)
    if isinstance(error, TooManyRequests):
        return _LIMITED
    if isinstance(error, Web3RPCError):
        return _LIMITED if _limits_requests((error.rpc_response or {}).get("error")) else None
    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return _LIMITED
        with suppress(ValueError):
            return f"HTTP {status} {HTTPStatus(status).phrase}"
        return f"HTTP {status}"
    return type(error).__name__


def _limits_requests(error: object) -> bool:
    """Whether the error object of a JSON-RPC answer refuses further requests, of whatever kind."""
    if not isinstance(error, dict):
        return False
    code, message = error.get("code"), str(error.get("message")).lower()
    is_about_results = "result" in message or "logs" in message
    return code == HTTPStatus.TOO_MANY_REQUESTS or (
        code == _LIMIT_EXCEEDED and "request" in message and not is_about_results
    )


def connect(
    url: str, *, timeout_seconds: float = _TIMEOUT_SECONDS, max_bytes: int = MAX_ANSWER_BYTES
) -> Web3:
    """Return a connection over HTTP whose answers have limits of time and size; nothing is asked yet."""
    session = requests.Session()
    # A proxy from the environment cannot reach this machine's own loopback interface.
    session.trust_env = urlsplit(url).hostname not in {"127.0.0.1", "localhost", "::1"}
    web3 = Web3(StrictProvider(url, session, timeout_seconds, max_bytes))
    # It asks for the chain's id twice in each call of a contract; which chain it is, ``check_chain`` asks.
    web3.middleware_onion.remove("validation")
    return web3


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
