"""Questions to the chain, over the first endpoint that answers."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from urllib.parse import urlsplit

import requests
from eth_typing import URI
from web3 import HTTPProvider, Web3
from web3.exceptions import BadResponseFormat, TooManyRequests
from web3.middleware import ExtraDataToPOAMiddleware

from sapo_client.ledger.errors import LedgerUnavailable

T = TypeVar("T")

_TIMEOUT_SECONDS: Final = 15
"""Longer than a busy public endpoint needs for a range of logs; the asker waits in a thread anyway."""

_UNREACHABLE: Final = (
    requests.RequestException,
    ConnectionError,
    TimeoutError,
    BadResponseFormat,
    TooManyRequests,
    json.JSONDecodeError,
)
"""The endpoint's fault. What the chain itself refuses is an answer, and no other endpoint is asked."""


class Rpc:
    """The endpoints of one chain; the one that answered last is asked first.

    Attributes:
        last_answer_seconds: when any endpoint last answered, on the monotonic clock; none before the first.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self.last_answer_seconds: float | None = None
        self._connections = [_connect(url) for url in self.urls]
        self._preferred = 0

    def ask(self, question: Callable[[Web3], T]) -> T:
        """The answer to a question.

        Raises:
            LedgerUnavailable: no endpoint answers.
        """
        reason = "none is named"
        for offset in range(len(self._connections)):
            index = (self._preferred + offset) % len(self._connections)
            try:
                answer = question(self._connections[index])
            except _UNREACHABLE as error:
                reason = f"{type(error).__name__}"
                continue
            self._preferred = index
            self.last_answer_seconds = time.monotonic()
            return answer
        raise LedgerUnavailable(self.urls, reason)


def _connect(url: str) -> Web3:
    session = requests.Session()
    # A proxy from the environment cannot reach this machine's own loopback interface.
    session.trust_env = urlsplit(url).hostname not in {"127.0.0.1", "localhost", "::1"}
    provider = HTTPProvider(
        URI(url),
        request_kwargs={"timeout": _TIMEOUT_SECONDS},
        session=session,
        exception_retry_configuration=None,  # the asker retries, and knows what it may repeat
    )
    web3 = Web3(provider)
    # Some test networks put signatures into a block's extra data, which web3 refuses without this.
    web3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)
    return web3
