"""Requests to the swarm's faucet while the account has no coins to register with."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_protocol.identifiers import Account

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient
    from sapo_client.observe.events import EventLog

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 30.0
"""Interval between two readings of an empty balance; coins of an earlier request arrive after some blocks."""

_ASK_SECONDS: Final = 600.0
"""Interval between two requests; a faucet serves an account once a day."""

_REQUEST_SECONDS: Final = 90.0
"""Time-out of a request; a faucet answers when its transaction is mined."""

_MAX_ANSWER: Final = 4096


@dataclass(frozen=True, slots=True)
class FaucetRequest:
    """Service that asks a faucet for coins until the account holds some.

    Args:
        url: of the faucet.
        show: called with each line for the terminal.
    """

    url: str
    account: Account
    ledger: LedgerClient
    events: EventLog
    clock: Callable[[], float]
    show: Callable[[str], None]

    async def run(self) -> None:
        """Ask when the account is empty; return once it holds coins."""
        asked: float | None = None
        while True:
            holds = await self._holds_coins()
            if holds:
                return
            if holds is False and (asked is None or trio.current_time() - asked >= _ASK_SECONDS):
                asked = trio.current_time()
                self.show(f"account {self.account} holds no coins: asking the faucet {self.url} for some")
                answer = await self.ask()
                self.show(answer)
                self.events.write("faucet", url=self.url, answer=answer)
            await trio.sleep(_LOOK_SECONDS)

    async def _holds_coins(self) -> bool | None:
        """Whether the account holds coins; None while the chain does not answer."""
        try:
            return bool((await self.ledger.look(self.clock, claims=False)).coins_wei)
        except LedgerError as error:
            _LOG.info("the balance is not known: %s", error)
            return None

    async def ask(self) -> str:
        """Ask once; return the outcome as a sentence for the terminal."""
        import httpx

        try:
            async with (
                httpx.AsyncClient(timeout=_REQUEST_SECONDS) as client,
                client.stream("POST", self.url, json={"account": str(self.account)}) as response,
            ):
                content = b""
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > _MAX_ANSWER:
                        return "the faucet's response is too long"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"the faucet did not answer: {error or type(error).__name__}"
        if response.is_success:
            return "the faucet sent coins"
        return f"the faucet refused with status {response.status_code}: {_why(content)}"


def _why(content: bytes) -> str:
    """Return the reason in a refusal, reduced to printable characters since the text is untrusted."""
    try:
        why = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        return "it gave no reason"
    return "".join(sign if sign.isprintable() else "?" for sign in str(why))[:200]
