"""Outcomes of calls that either return or raise ``RemoteProtocolError``."""

from collections.abc import Callable
from typing import TypeVar

from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule
from sapo_verification.reputation.penalties import verdict

T = TypeVar("T")


def outcome_of(call: Callable[..., T], *arguments: object) -> T | Reason:
    """Return the call's result, or the reason of its refusal; no other exception is caught."""
    try:
        return call(*arguments)
    except RemoteProtocolError as error:
        return error.reason


def ruling_of(call: Callable[..., T], *arguments: object) -> T | Rule:
    """Return the call's result, or the rule of its refusal."""
    try:
        return call(*arguments)
    except RemoteProtocolError as error:
        return error.rule


def reason_of(call: Callable[..., object], *arguments: object) -> Reason | None:
    """Return the reason of the call's refusal, or None if it returned."""
    outcome = outcome_of(call, *arguments)
    return outcome if isinstance(outcome, Reason) else None


def verdict_of(call: Callable[..., object], *arguments: object) -> Verdict:
    """Return the gossip verdict of the call."""
    reason = reason_of(call, *arguments)
    return Verdict.ACCEPT if reason is None else verdict(reason)
