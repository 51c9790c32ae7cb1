"""An endpoint that hides or changes logs, and the hash that proves them."""

import random
from collections.abc import Callable
from typing import Any

from eth_utils import keccak
from support.faulty import FaultyEndpoint, Weather
from support.network import Network

CALM = Weather(random.Random(0), fault_rate=0.0, kill_rate=0.0, calm=True)
TIPS = {"0x" + keccak(text=f"{name}()")[:4].hex() for name in ("lastFinal", "lastChange")}
"""The questions for the hash over the newest record, and over the newest change of bonds."""

Logs = list[dict[str, Any]]


class Liar(FaultyEndpoint):
    """An endpoint that may change its responses, and records the blocks of requests for logs.

    Attributes:
        tamper: changes the logs of a response.
        tip: the value that it reports from the state, if a false one.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network, network, CALM)
        self.tamper: Callable[[Logs], Logs] = lambda logs: logs
        self.tip: str | None = None
        self.sought: list[tuple[int, int]] = []

    def _call(self, method: str, params: list[Any]) -> object:
        answer: Any = super()._call(method, params)
        if method == "eth_getLogs":
            self.sought.append((int(params[0]["fromBlock"], 16), int(params[0]["toBlock"], 16)))
            return self.tamper(answer)
        is_tip = method == "eth_call" and params[0].get("data", params[0].get("input")) in TIPS
        return self.tip if is_tip and self.tip else answer
