"""Extension points: parts of a node that a program may add or replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sapo_client.node.auditing import assembly as auditing
from sapo_client.node.auditing.auditor import Auditor
from sapo_verification.observer import Observer


class StartedNode(Protocol):
    """The interface of a running node for the program that runs it."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The multiaddrs at which others reach it, with its peer id."""
        ...

    @property
    def step(self) -> int:
        """The policy's last step."""
        ...

    def request_stop(self, *, finish: bool = True) -> None:
        """Stop after the current round, or at once unless ``finish``; only inside its event loop."""
        ...


def _ignore(_node: StartedNode) -> None:
    """Do nothing with a node that has started."""


def _nothing() -> None:
    """Do nothing."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Roles:
    """Parts of a node that a program replaces, and its callbacks.

    Attributes:
        observers: receive every decision on rollouts, in addition to the node's own observers.
        opened: called inside the event loop once the parts of the node exist, before its services start.
        is_stop_requested: asked until the node has started: whether it is to end before that.
        started: called inside the event loop once the node listens and serves its control API.
    """

    open_auditor: auditing.OpenAuditor = Auditor
    observers: tuple[Observer, ...] = ()
    opened: Callable[[], None] = _nothing
    is_stop_requested: Callable[[], bool] = _never
    started: Callable[[StartedNode], None] = _ignore

    def join(self, *own: Observer) -> tuple[Observer, ...]:
        """Return the node's own observers and the further ones."""
        return (*own, *self.observers)


NO_ROLES: Final = Roles()
"""A node with its own parts only."""
