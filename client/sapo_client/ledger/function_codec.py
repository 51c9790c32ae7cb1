"""ABI encoding of the contracts' functions; each codec is built once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from eth_typing import ABIFunction, HexStr
from eth_utils.abi import function_abi_to_4byte_selector, get_abi_input_types, get_abi_output_types
from hexbytes import HexBytes
from web3 import Web3

from sapo_client.ledger.artifact import load

_CODEC: Final = Web3().codec


@dataclass(frozen=True, slots=True)
class FunctionCodec:
    """ABI codec of one function.

    Attributes:
        selector: the four bytes that a call begins with.
        inputs: ABI types of its arguments.
        outputs: ABI types of what it returns.
    """

    selector: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def encode(self, arguments: Sequence[object]) -> HexStr:
        """Return call data, in hexadecimal."""
        return HexStr("0x" + self.call_data(arguments).hex())

    def call_data(self, arguments: Sequence[object]) -> bytes:
        """Return call data."""
        return self.selector + _CODEC.encode(self.inputs, arguments)

    def decode(self, answer: HexBytes) -> Any:
        """Return the function's one result, or all of them as a tuple; lists in them as tuples, too.

        So that answers can be counted, all of it is hashable.

        Raises:
            DecodingError: the bytes do not have the function's result types.
        """
        values = tuple(map(_hashable, _CODEC.decode(self.outputs, answer)))
        return values[0] if len(values) == 1 else values


@cache
def function_codec(contract: str, function: str) -> FunctionCodec:
    """Return the codec of a function whose name is not overloaded."""
    (entry,) = (
        each for each in load(contract).abi if each["type"] == "function" and each["name"] == function
    )
    abi = ABIFunction(**entry)
    return FunctionCodec(
        selector=function_abi_to_4byte_selector(abi),
        inputs=tuple(get_abi_input_types(abi)),
        outputs=tuple(get_abi_output_types(abi)),
    )


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
