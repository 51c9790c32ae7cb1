"""Reading the outcome of a call that either succeeds or blames the sender."""

from collections.abc import Callable
from typing import TypeVar

from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule
from sapo_verification.reputation.penalties import verdict

T = TypeVar("T")


def outcome_of(call: Callable[..., T], *arguments: object) -> T | Reason:
    """What the call returned, or why it refused its input; no other exception is caught."""
    try:
        return call(*arguments)
    except RemoteProtocolError as error:
        return error.reason


def ruling_of(call: Callable[..., T], *arguments: object) -> T | Rule:
    """What the call returned, or the rule by which it refused its input."""
    try:
        return call(*arguments)
    except RemoteProtocolError as error:
        return error.rule


def reason_of(call: Callable[..., object], *arguments: object) -> Reason | None:
    """Why the call refused its input, or none if it did not."""
    outcome = outcome_of(call, *arguments)
    return outcome if isinstance(outcome, Reason) else None


def verdict_of(call: Callable[..., object], *arguments: object) -> Verdict:
    """Return the gossip verdict of the call."""
    reason = reason_of(call, *arguments)
    return Verdict.ACCEPT if reason is None else verdict(reason)
