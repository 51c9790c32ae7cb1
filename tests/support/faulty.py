"""Endpoints of a network that fail at random, and crashes of a process at any point."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

import requests
from support.network import Network
from web3 import Web3
from web3.providers import JSONBaseProvider

from sapo_client.ledger.chain.errors import INVALID_PARAMS, RpcError
from sapo_client.ledger.outbox import Outbox

_BLOCK_PARAMETER: Final = {
    "eth_getBlockByNumber": 0,
    "eth_getTransactionCount": 1,
    "eth_getCode": 1,
    "eth_call": 1,
    "eth_estimateGas": 1,
}


class Killed(BaseException):
    """End of a process; none of its code may catch this."""


class Mode(Enum):
    """State of an endpoint."""

    GOOD = auto()
    SILENT = auto()
    STALE = auto()
    FOREIGN = auto()


class Fault(Enum):
    """Fault of one request."""

    LOST = auto()
    """It times out and was never received."""

    UNHEARD = auto()
    """It was carried out, and its answer times out."""

    DROPPED = auto()
    """The connection breaks."""

    KILLED_BEFORE = auto()
    KILLED_AFTER = auto()


@dataclass
class Faults:
    """Rates of faults; ``off`` stops them.

    Attributes:
        struck: number of faults of each kind, by name.
    """

    rng: random.Random
    fault_rate: float
    kill_rate: float
    off: bool = False

    def __post_init__(self) -> None:
        self.counts: dict[str, int] = {}

    def fault(self) -> Fault | None:
        """Return the fault of the next request, or None."""
        if self.off or (drawn := self.rng.random()) >= self.fault_rate + self.kill_rate:
            return None
        kills, losses = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER), (Fault.LOST, Fault.UNHEARD, Fault.DROPPED)
        fault = self.rng.choice(kills if drawn < self.kill_rate else losses)
        self.count(fault.name)
        return fault

    def maybe_kill(self, where: str) -> None:
        """End the process with the probability ``kill_rate``."""
        if not self.off and self.rng.random() < self.kill_rate:
            self.count(f"KILLED_{where}")
            raise Killed(where)

    def count(self, name: str) -> None:
        """Count a fault."""
        self.counts[name] = self.counts.get(name, 0) + 1


class FaultyEndpoint(JSONBaseProvider):
    """One address of a network, in one of its modes."""

    def __init__(self, network: Network, foreign: Network, faults: Faults) -> None:
        super().__init__()
        self.mode, self.height = Mode.GOOD, 0
        self._network, self._foreign, self._faults = network, foreign, faults

    def turn(self, mode: Mode) -> None:
        """Change the mode; a stale endpoint stays at the current block."""
        self.mode, self.height = mode, self._network.engine.head.block_number

    def make_request(self, method: Any, params: Any) -> Any:
        """Return the answer, unless a fault prevents it."""
        fault = self._faults.fault()
        if fault is Fault.KILLED_BEFORE:
            raise Killed(method)
        if fault is Fault.LOST or self.mode is Mode.SILENT:
            raise requests.ConnectTimeout(method)
        if fault is Fault.DROPPED:
            raise requests.ConnectionError(method)
        answer = self._answer(json.loads(self.encode_rpc_request(method, params)))
        if fault is Fault.KILLED_AFTER:
            raise Killed(method)
        if fault is Fault.UNHEARD:
            raise requests.ReadTimeout(method)
        return self.decode_rpc_response(json.dumps(answer).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            result = self._call(request["method"], request["params"])
        except RpcError as error:
            return {"jsonrpc": "2.0", "id": request["id"], "error": error.to_json()}
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    def _call(self, method: str, params: list[Any]) -> object:
        network = self._foreign if self.mode is Mode.FOREIGN else self._network
        if method == "eth_sendRawTransaction":
            return "0x" + network.send(bytes.fromhex(params[0][2:])).hex()
        if self.mode is Mode.STALE:
            return self._stale(method, params)
        return network.methods.call(method, params)

    def _stale(self, method: str, params: list[Any]) -> object:
        height = min(self.height, self._network.engine.head.block_number)
        if method == "eth_blockNumber":
            return hex(height)
        if (place := _BLOCK_PARAMETER.get(method)) is not None:
            asked = params[place] if place < len(params) else "latest"
            number = int(asked, 16) if asked.startswith("0x") else height
            if method == "eth_getBlockByNumber" and number > height:
                return None
            if number > height:
                raise RpcError(INVALID_PARAMS, f"there is no block {number}")
            params = [*params[:place], hex(number), *params[place + 1 :]]
        answer = self._network.methods.call(method, params)
        if method == "eth_getTransactionReceipt" and isinstance(answer, dict):
            return answer if int(answer["blockNumber"], 16) <= height else None
        return answer


class Killer(Protocol):
    """What decides when a process ends."""

    def maybe_kill(self, where: str) -> None:
        """Raise ``Killed`` if the process ends here."""


class FaultyOutbox(Outbox):
    """The outbox of a process that may end around each of its transactions."""

    faults: Killer

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        faults = self.__dict__.get("faults")
        if faults is None:  # the file is being opened
            with super()._transaction() as connection:
                yield connection
            return
        faults.maybe_kill("BEGIN")
        with super()._transaction() as connection:
            yield connection
            faults.maybe_kill("COMMIT")
        faults.maybe_kill("COMMITTED")


def connected(endpoint: FaultyEndpoint) -> Web3:
    """Return a connection to an endpoint."""
    return Web3(endpoint)
