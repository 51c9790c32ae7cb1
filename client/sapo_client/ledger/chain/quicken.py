"""Faster replacements of functions of the execution specification, with the same results.

The specification is written to be read. Of the time of a long call, these parts are unnecessary: traces
that are not read, jump targets searched again at every call, an enumeration for every instruction, and
checks of the number types that go through abstract methods. Together they are two fifths of the time of a
fraud proof over a thousand accounts. The replay of recorded blocks proves that the results stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from ethereum.forks.prague.vm import gas, interpreter
from ethereum.forks.prague.vm.exceptions import InvalidOpcode
from ethereum.forks.prague.vm.instructions import op_implementation
from ethereum_types.numeric import U256, Uint, Unsigned

_CODES: Final = 64
"""Contracts whose jump targets are remembered: several times this project's."""

_LIMIT: Final = 2**256


class _Instructions:
    """Stands for the enumeration of instructions: the byte itself is the key of its implementation."""

    STOP: Final = 0

    def __call__(self, byte: int) -> int:
        return byte


def quicken() -> None:
    """Make the substitutions in the imported specification."""
    interpreter.get_valid_jump_destinations = lru_cache(_CODES)(interpreter.get_valid_jump_destinations)
    interpreter.Ops = _Instructions()
    interpreter.op_implementation = _implementations()
    interpreter.evm_trace = gas.evm_trace = _trace_nothing
    Uint.__init__ = _init_unbounded
    U256.__init__ = _init_of_256_bits
    Unsigned.__eq__ = _is_equal


def _implementations() -> list[Callable[[Any], None]]:
    table = [_refusal(byte) for byte in range(256)]
    for instruction, implementation in op_implementation.items():
        table[instruction.value] = implementation
    return table


def _refusal(byte: int) -> Callable[[Any], None]:
    def refuse(_: Any) -> None:
        raise InvalidOpcode(byte)

    return refuse


def _trace_nothing(_machine: object, _event: object) -> None:
    """Take the place of the tracer: no traces are read."""


def _init_unbounded(self: Any, value: Any) -> None:
    number = int(value)
    if number < 0:
        raise OverflowError
    self._number = number


def _init_of_256_bits(self: Any, value: Any) -> None:
    number = int(value)
    if not 0 <= number < _LIMIT:
        raise OverflowError
    self._number = number


def _is_equal(self: Any, other: object) -> bool:
    if isinstance(other, Unsigned):
        return bool(self._number == other._number)
    return bool(self._number == other) if isinstance(other, int) else NotImplemented
