"""Endpoints over real HTTP that answer as no chain does, or as another swarm's chain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from support.local_api import ApiHandler, serving

from sapo_client.ledger.artifact import load
from sapo_protocol.identifiers import Account

Answer = Callable[[str, list[Any]], bytes]
"""Returns the body of the response to a method and its parameters."""

_HEADER: Final = {"jsonrpc": "2.0", "id": 0}
_BLOCK: Final = {
    "number": "0x10",
    "timestamp": "0x6b49d200",
    "hash": "0x" + "11" * 32,
    "baseFeePerGas": "0x7",
}


def body(text: bytes) -> Answer:
    """Answer everything with the same bytes."""
    return lambda _method, _params: text


def result(value: Any) -> Answer:
    """Answer everything with the same result."""
    return body(json.dumps({**_HEADER, "result": value}).encode())


def error(value: Any) -> Answer:
    """Answer everything with the same error."""
    return body(json.dumps({**_HEADER, "error": value}).encode())


def chain(chain_id: int, codes: Mapping[str, str] | None = None, call: str = "0x") -> Answer:
    """Answer as an empty chain with some contracts, all of whose functions return the same."""
    results: dict[str, Any] = {
        "eth_chainId": hex(chain_id),
        "eth_blockNumber": "0x10",
        "eth_getBlockByNumber": _BLOCK,
        "eth_getBalance": hex(10**20),
        "eth_getTransactionCount": "0x0",
        "eth_estimateGas": "0x5208",
        "eth_maxPriorityFeePerGas": "0x1",
        "eth_getTransactionReceipt": None,
        "eth_getLogs": [],
        "eth_call": call,
    }

    def answer(method: str, params: list[Any]) -> bytes:
        value = results.get(method)
        if method == "eth_getCode":
            value = (codes or {}).get(str(params[0]).lower(), "0x")
        if method == "eth_sendRawTransaction":
            return error({"code": -32000, "message": "insufficient funds"})(method, params)
        return json.dumps({**_HEADER, "result": value}).encode()

    return answer


def code_of(name: str) -> str:
    """Return a contract's code as a chain returns it, with zero immutables."""
    return "0x" + load(name).deployed.hex()


def codes(contracts: Mapping[Account, str]) -> dict[str, str]:
    """Return the code at each address."""
    return {str(address): code_of(name) for address, name in contracts.items()}


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve answers until the end of the context; yield the URL."""

    class Handler(ApiHandler):
        def do_POST(self) -> None:
            """Answer one request."""
            try:
                asked = json.loads(self.body())
            except ValueError:
                asked = {}
            self.reply(200, answer(str(asked.get("method")), asked.get("params") or []))

    with serving(Handler) as url:
        yield url
