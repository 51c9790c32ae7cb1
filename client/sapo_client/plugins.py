"""Plug-ins: strategies, losses, task samplers and arms that other packages provide by entry points.

A package names an object under a group, and a setting names the object. Nothing of a plug-in is imported
before a setting asks for it. It runs with all rights of the node, like any other installed package.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError


@dataclass(frozen=True, slots=True)
class PluginGroup:
    """One kind of plug-in.

    Attributes:
        name: the group of its entry points.
        what: what it is, for messages.
        setting: where its name is given.
        built_in: the names that come with this release, which no package can replace.
    """

    name: str
    what: str
    setting: str
    built_in: tuple[str, ...]


STRATEGIES: Final = PluginGroup(
    "sapo.sampling_strategies",
    "sampling strategy",
    "sampler.strategy",
    ("uniform", "informative", "weighted", "useful"),
)
TASK_SAMPLERS: Final = PluginGroup("sapo.task_samplers", "task sampler", "sampler.task_sampler", ())
LOSSES: Final = PluginGroup(
    "sapo.external_losses",
    "loss of others' answers",
    "learner.external_loss",
    ("reinforce", "negative_weighted", "tapered", "positive", "capability"),
)
ARMS: Final = PluginGroup("sapo.lab_arms", "arm", "sapo lab run --arms", ())
GROUPS: Final = (STRATEGIES, TASK_SAMPLERS, LOSSES, ARMS)


def installed(group: PluginGroup) -> dict[str, EntryPoint]:
    """Return the plug-ins of a group by name; none is imported. Built-in names are left out."""
    found = sorted(entry_points(group=group.name), key=lambda each: each.name)
    return {each.name: each for each in found if each.name not in group.built_in}


def check_name(group: PluginGroup, name: str) -> str:
    """Return a name if there is such an object, built in or installed.

    Raises:
        ValueError: there is none; the text lists those that there are.
    """
    if name in group.built_in or name in (others := installed(group)):
        return name
    raise ValueError(unknown(group, name, others))


def unknown(group: PluginGroup, name: str, others: Collection[str]) -> str:
    """Return the text of the error for an unknown name."""
    plugged = f"; installed: {', '.join(others)}" if others else "; no plug-in is installed"
    built_in = ", ".join(group.built_in) or "none"
    return (
        f"there is no {group.what} {name!r}; built in: {built_in}{plugged}. A plug-in must be installed in"
        f" the environment of sapo, with an entry point {name!r} in the group {group.name}"
    )


def load(group: PluginGroup, name: str, expected: type | None = None) -> Any:
    """Import a plug-in and return its object, whose errors name the plug-in when it is called.

    Args:
        expected: type of the object; None for anything that can be called.

    Raises:
        SapoError: there is none of that name, its import fails, or it is something else (exit code 3).
    """
    found = installed(group).get(name)
    if found is None:
        raise SapoError(
            unknown(group, name, installed(group)),
            hint=f"correct {group.setting}, or install the package that has it",
            exit_code=ExitCode.CONFIG,
        )
    origin = f"{found.dist.name} {found.dist.version}" if found.dist else "an unknown package"
    plugin = f"the {group.what} {name!r} of {origin}"
    hint = f"repair or update {origin}, or choose another {group.setting}"
    with _Blamed(f"{plugin} cannot be imported", hint):
        loaded = found.load()
    if not (callable(loaded) if expected is None else isinstance(loaded, expected)):
        wanted = "can be called" if expected is None else f"is a {expected.__name__}"
        raise SapoError(
            f"{plugin} is a {type(loaded).__name__}, nothing that {wanted}",
            hint=f"its entry point {found.value} must name what docs/plugins.md shows",
            exit_code=ExitCode.CONFIG,
        )
    return _blamed(loaded, f"{plugin} failed", hint)


def _blamed(loaded: Any, text: str, hint: str) -> Any:
    """Return the object wrapped so that errors of its functions name the plug-in."""
    if is_dataclass(loaded) and not isinstance(loaded, type):
        held = {field.name: getattr(loaded, field.name) for field in fields(loaded)}
        calls = {name: _blamed(value, text, hint) for name, value in held.items() if callable(value)}
        return replace(loaded, **calls)
    function: Callable[..., Any] = loaded

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with _Blamed(text, hint):
            return function(*arguments, **named)

    return call


class _Blamed(AbstractContextManager[None]):
    """Replaces any exception of a plug-in's code by a `SapoError` that names the plug-in.

    Out-of-memory errors pass, since the learner then tries smaller micro-batches.
    """

    def __init__(self, text: str, hint: str) -> None:
        self._text, self._hint = text, hint

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, SapoError) or _lacks_memory(error):
            return
        place = traceback.extract_tb(trace)[-1]
        raise SapoError(
            f"{self._text}: {type(error).__name__}: {error} ({place.filename}, line {place.lineno})",
            hint=self._hint,
            exit_code=ExitCode.CONFIG,
        ) from error


def _lacks_memory(error: Exception) -> bool:
    """Whether Python or torch, which is not imported here, has no memory left."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)
