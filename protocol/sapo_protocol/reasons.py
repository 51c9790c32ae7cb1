"""The verdicts on a message and the reasons behind them."""

from enum import StrEnum


class Verdict(StrEnum):
    """A decision about a gossiped message, in gossipsub's terms."""

    ACCEPT = "accept"
    """Forward it."""
    IGNORE = "ignore"
    """Drop it; the forwarder is not at fault."""
    REJECT = "reject"
    """Drop it; every honest node would, at any time, so the forwarder is at fault."""


class Reason(StrEnum):
    """Why a message or a rollout was refused; the same names in code, metrics, events and vectors."""

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
