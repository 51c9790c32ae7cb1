"""An endpoint that hides or changes logs, and the hash that proves them."""

import random
from collections.abc import Callable
from typing import Any

from eth_utils import keccak
from support.faulty import Faults, FaultyEndpoint
from support.network import Network

NO_FAULTS = Faults(random.Random(0), fault_rate=0.0, kill_rate=0.0, off=True)
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
        super().__init__(network, network, NO_FAULTS)
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
