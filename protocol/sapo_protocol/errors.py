"""Verdicts, the reasons behind them, and the two families of protocol errors.

``LocalProtocolError`` says that we did wrong, ``RemoteProtocolError`` that they did.
Nothing else leaves a parser of this package, whatever bytes it is fed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapo_protocol.rules import Rule


class Verdict(StrEnum):
    """A gossip decision, in gossipsub's words."""

    ACCEPT = "accept"
    """Forward it."""
    IGNORE = "ignore"
    """Drop it; nobody is to blame."""
    REJECT = "reject"
    """Drop it; every honest node would, at any time, so the forwarder is to blame."""


class Reason(StrEnum):
    """Why a message or a rollout went no further; the same words in code, metrics, events and vectors."""

    # stage 0: transport
    FLOOD = "flood"
    OVERSIZE = "oversize"
    # stage 1: strict decoding
    NOT_CANONICAL = "not_canonical"
    SCHEMA = "schema"
    OUT_OF_BOUNDS = "out_of_bounds"
    # stage 2: domain
    WRONG_VERSION = "wrong_version"
    WRONG_KIND = "wrong_kind"
    WRONG_SWARM = "wrong_swarm"
    # stage 3: time
    EPOCH_PAST = "epoch_past"
    EPOCH_FUTURE = "epoch_future"
    # stage 4: duplicates
    SEEN = "seen"
    # stage 5: certificate
    CERTIFICATE_UNKNOWN = "certificate_unknown"
    CERTIFICATE_MALFORMED = "certificate_malformed"
    CERTIFICATE_EXPIRED = "certificate_expired"
    NOT_AN_AUDITOR = "not_an_auditor"
    # stage 6: assignment
    SLOT_OVER_QUOTA = "slot_over_quota"
    UNKNOWN_FAMILY = "unknown_family"
    EQUIVOCATION = "equivocation"
    # stage 7: signature
    BAD_SIGNATURE = "bad_signature"
    # stage 8: account
    BANNED = "banned"
    ACCOUNT_QUOTA = "account_quota"
    NEWCOMER_CAP = "newcomer_cap"
    # stage 9: text policy
    TEXT_POLICY = "text_policy"
    # stage 10: checker
    BEACON_UNKNOWN = "beacon_unknown"
    CHECKER_TIMEOUT = "checker_timeout"
    CHECKER_CRASH = "checker_crash"
    CODE_IN_ANSWER = "code_in_answer"
    NO_SIGNAL = "no_signal"
    # stage 11: duplicates of content
    NEAR_DUPLICATE = "near_duplicate"
    # stage 12: likelihood under the own policy
    UNLIKELY = "unlikely"
    # stage 13: planted phrases
    PLANTED_PHRASE = "planted_phrase"


class ProtocolError(Exception):
    """The common root; never raised itself."""


class LocalProtocolError(ProtocolError):
    """Our own mistake: a value that must not be put on the wire."""


class RemoteProtocolError(ProtocolError):
    """Somebody else's mistake: the rule that it breaks, whose reason decides the verdict."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule} {rule.reason}: {detail}")
        self.rule = rule
        self.reason = rule.reason
        self.detail = detail
