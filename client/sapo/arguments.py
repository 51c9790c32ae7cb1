"""Checks of what a program passes, of what its type does not say."""

from __future__ import annotations

from collections.abc import Sequence

from sapo_client.errors import ExitCode, SapoError


def require_list(name: str, values: Sequence[str] | None) -> list[str] | None:
    """Return a list of texts; None stays None.

    Args:
        name: of the argument, for the error.

    Raises:
        SapoError: it is one text, which Python would take for a list of its characters.
    """
    if isinstance(values, str):
        raise SapoError(
            f"{name} takes a list, and {values!r} is one text",
            hint=f"write {name}=[{values!r}]",
            exit_code=ExitCode.USAGE,
        )
    return None if values is None else list(values)


def require_steps(steps: int | None) -> int | None:
    """Return a number of training steps; None, which is no limit, stays None.

    Raises:
        SapoError: it is no integer, or below 1.
    """
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise SapoError(
            f"steps is a number of training steps, and {steps!r} is none",
            hint="write an integer of 1 or more, or leave it out to train until the node is stopped",
            exit_code=ExitCode.USAGE,
        )
    return steps
