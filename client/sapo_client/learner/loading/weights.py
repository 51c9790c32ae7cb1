"""Weights of a model: whether its folder has all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError

_NAMED: Final = 3
"""Tensors that an error names."""


def require_all_weights(name: str, model: Any, report: dict[str, Any]) -> None:
    """Raise unless every weight came from the folder; transformers would make the others up.

    Args:
        name: folder or hub name.
        model: as loaded.
        report: transformers' report of the loading; weights that are tied to others are not in it.

    Raises:
        SapoError: weights are missing.
    """
    missing = report["missing_keys"]
    if missing:
        raise SapoError(
            f"the model {name!r} lacks weights: {_some(missing)}",
            hint="its tensors must be named as transformers names those of "
            f"{type(model).__name__}; they would be random",
            exit_code=ExitCode.CONFIG,
        )


def _some(names: Iterable[str]) -> str:
    """Return the first of the names and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
