"""What only some installations have: the extras of the package, and the error where one is missing."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from sapo_client.errors import ExitCode, SapoError


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of ``sapo-swarm``.

    Attributes:
        name: what stands in brackets for pip.
        provides: what a command needs it for, as the error names it.
        modules: the modules that it adds, as they are imported.
    """

    name: str
    provides: str
    modules: tuple[str, ...]

    def is_installed(self) -> bool:
        """Whether every module can be found; none is imported."""
        return all(map(_is_found, self.modules))

    @property
    def command(self) -> str:
        """The command that adds it."""
        return f"pip install 'sapo-swarm[{self.name}]'"


TESTNET: Final = Extra("testnet", "the embedded chain", ("ethereum_types", "ethereum_rlp", "py_ecc"))
LAB: Final = Extra("lab", "plots", ("matplotlib",))
PARQUET: Final = Extra("parquet", "Parquet files", ("pyarrow",))
LORA: Final = Extra("lora", "LoRA adapters", ("peft",))
VLLM: Final = Extra("vllm", "vLLM", ("vllm",))

EXTRAS: Final = (TESTNET, LAB, PARQUET, LORA, VLLM)


def require(extra: Extra) -> None:
    """Raise unless an extra is installed.

    Raises:
        SapoError: it is missing; the hint is the command that adds it.
    """
    if not extra.is_installed():
        raise SapoError(
            f"this command needs {extra.provides}, which is not installed",
            hint=extra.command,
            exit_code=ExitCode.USAGE,
        )


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
