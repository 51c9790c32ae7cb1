"""Parsing of JSON-RPC parameters into values; anything else is an invalid parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

from sapo_client.ledger.chain.errors import INVALID_PARAMS, RpcError
from sapo_client.ledger.chain.evm import CallRequest
from sapo_client.ledger.chain.header import GAS_LIMIT

HEAD_TAGS = frozenset({"latest", "pending", "safe", "finalized"})
"""Every block of this chain is final when it is mined, and nothing is ever pending."""


def quantity(value: object, name: str) -> int:
    """Return a non-negative integer in hexadecimal."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise RpcError(INVALID_PARAMS, f"{name} is not a hexadecimal number")
    try:
        number = int(value[2:], 16)
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"{name} is not a hexadecimal number") from error
    if not 0 <= number < 2**256:
        raise RpcError(INVALID_PARAMS, f"{name} is not a number of 256 bits")
    return number


def data(value: object, name: str, *, size: int | None = None) -> bytes:
    """Return bytes in hexadecimal, of a given size if one is named."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise RpcError(INVALID_PARAMS, f"{name} is not hexadecimal data")
    try:
        raw = bytes.fromhex(value[2:])
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"{name} is not hexadecimal data") from error
    if size is not None and len(raw) != size:
        raise RpcError(INVALID_PARAMS, f"{name} has {len(raw)} bytes, not {size}")
    return raw


def block_number(value: object, head: int) -> int:
    """Return a block by number or tag."""
    if value is None or value in HEAD_TAGS:
        return head
    return 0 if value == "earliest" else quantity(value, "block")


def call_request(value: object) -> CallRequest:
    """Return the transaction object of a call or an estimate."""
    if not isinstance(value, Mapping):
        raise RpcError(INVALID_PARAMS, "the transaction is not an object")
    given = {name: item for name, item in value.items() if item is not None}
    gas = quantity(given["gas"], "gas") if "gas" in given else GAS_LIMIT
    return CallRequest(
        sender=data(given.get("from", "0x" + "00" * 20), "from", size=20),
        to=data(given["to"], "to", size=20) if "to" in given else b"",
        data=data(given.get("input", given.get("data", "0x")), "input"),
        value=quantity(given.get("value", "0x0"), "value"),
        gas=min(gas, GAS_LIMIT),
    )


def addresses(value: object) -> tuple[str, ...]:
    """Return the address or addresses of a log filter, in lower case."""
    listed = [] if value is None else value if isinstance(value, list) else [value]
    return tuple("0x" + data(item, "address", size=20).hex() for item in listed)


def topics(value: object) -> tuple[tuple[str, ...], ...]:
    """Return the topics of a log filter: per position the allowed ones, none for any."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 4:
        raise RpcError(INVALID_PARAMS, "topics is not a list of at most four")
    return tuple(_alternatives(item) for item in value)


def _alternatives(value: object) -> tuple[str, ...]:
    listed = [] if value is None else value if isinstance(value, list) else [value]
    return tuple("0x" + data(item, "topic", size=32).hex() for item in listed)


def at(params: Sequence[Any], index: int) -> Any:
    """Return a parameter by position; none if it was left out."""
    return params[index] if index < len(params) else None
