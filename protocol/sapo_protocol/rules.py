"""Every numbered rule of the specification: its number and the reason that it is refused with.

A number is ``R<stage>.<n>``, in stage 1 ``R1.<kind>.<n>`` with kind 0 for what every message obeys.
Numbers are never given to another rule; ``protocol/README.md`` says what each of them demands.
"""

from enum import Enum, StrEnum
from typing import Final


class Verdict(StrEnum):
    """A decision about a gossiped message, in gossipsub's terms."""

    ACCEPT = "accept"
    """Forward it."""
    IGNORE = "ignore"
    """Drop it without a penalty for the forwarder."""
    REJECT = "reject"
    """Drop it, and penalise the forwarder: every honest node drops it, at any time."""


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
    RESERVED = "reserved"
    # stage 3: time
    EPOCH_PAST = "epoch_past"
    EPOCH_FUTURE = "epoch_future"
    # stage 4: duplicates
    SEEN = "seen"
    CONTRIBUTION_QUOTA = "contribution_quota"
    # stage 5: certificate
    CERTIFICATE_UNKNOWN = "certificate_unknown"
    CERTIFICATE_MALFORMED = "certificate_malformed"
    CERTIFICATE_EXPIRED = "certificate_expired"
    NOT_AN_AUDITOR = "not_an_auditor"
    NO_BOND = "no_bond"
    # stage 6: assignment
    SLOT_OVER_QUOTA = "slot_over_quota"
    NOT_ITS_TURN = "not_its_turn"
    UNKNOWN_FAMILY = "unknown_family"
    WRONG_ISLAND = "wrong_island"
    TERMS_UNKNOWN = "terms_unknown"
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
    OFF_LEVEL = "off_level"
    NODE_BUSY = "node_busy"
    # stage 11: duplicates of content
    NEAR_DUPLICATE = "near_duplicate"
    # stage 12: likelihood under the own policy
    UNLIKELY = "unlikely"
    # stage 13: planted phrases
    PLANTED_PHRASE = "planted_phrase"


STAGES: Final = (
    "transport",
    "encoding",
    "swarm and kind",
    "epoch",
    "not seen before",
    "certificate",
    "assigned slot",
    "signature",
    "account",
    "visible text",
    "task and score",
    "no copy",
    "likelihood",
    "planted phrases",
)
"""Title of each stage of the pipeline, by its number: section 6 of the specification."""


class Rule(Enum):
    """One check, under the number that the specification, refusals and vectors share."""

    # stage 0: transport
    CONNECTION_BUDGET = "R0.1", Reason.FLOOD
    MESSAGE_SIZE = "R0.2", Reason.OVERSIZE
    # stage 1: the encoding, in the order in which a decoder checks it
    VALUE_COUNT = "R1.0.1", Reason.OUT_OF_BOUNDS
    BYTES_THERE = "R1.0.2", Reason.NOT_CANONICAL
    DEFINITE_LENGTH = "R1.0.3", Reason.NOT_CANONICAL
    SHORTEST_HEAD = "R1.0.4", Reason.NOT_CANONICAL
    MAP_KEY_TYPE = "R1.0.5", Reason.NOT_CANONICAL
    MAJOR_TYPE = "R1.0.6", Reason.NOT_CANONICAL
    TEXT_UTF8 = "R1.0.7", Reason.NOT_CANONICAL
    NESTING = "R1.0.8", Reason.NOT_CANONICAL
    ITEMS_THERE = "R1.0.9", Reason.NOT_CANONICAL
    MAP_KEYS_ASCEND = "R1.0.10", Reason.NOT_CANONICAL
    NOTHING_BEHIND = "R1.0.11", Reason.NOT_CANONICAL
    # stage 1: the envelope and the response to a request
    ENVELOPE_KEYS = "R1.0.12", Reason.SCHEMA
    ENVELOPE_TYPES = "R1.0.13", Reason.SCHEMA
    ENVELOPE_SIGNATURE = "R1.0.14", Reason.OUT_OF_BOUNDS
    RESPONSE_TYPES = "R1.0.15", Reason.SCHEMA
    ENVELOPE_RESERVED = "R1.0.16", Reason.RESERVED
    # stage 1: certificates
    CERTIFICATE_KEYS = "R1.1.1", Reason.SCHEMA
    CERTIFICATE_TYPES = "R1.1.2", Reason.SCHEMA
    CERTIFICATE_DURATION = "R1.1.3", Reason.OUT_OF_BOUNDS
    CERTIFICATE_SIGNATURE = "R1.1.4", Reason.OUT_OF_BOUNDS
    CERTIFICATE_RESERVED = "R1.1.5", Reason.RESERVED
    # stage 1: rollouts
    ROLLOUT_KEYS = "R1.2.1", Reason.SCHEMA
    ROLLOUT_TYPES = "R1.2.2", Reason.SCHEMA
    ROLLOUT_SLOT = "R1.2.3", Reason.OUT_OF_BOUNDS
    ROLLOUT_FAMILY = "R1.2.4", Reason.OUT_OF_BOUNDS
    ROLLOUT_COMPLETIONS = "R1.2.5", Reason.OUT_OF_BOUNDS
    COMPLETION_SIZE = "R1.2.6", Reason.OUT_OF_BOUNDS
    GROUP_SIZE = "R1.2.7", Reason.OUT_OF_BOUNDS
    COMPLETION_UTF8 = "R1.2.8", Reason.SCHEMA
    ROLLOUT_RESERVED = "R1.2.9", Reason.RESERVED
    # stage 1: tallies
    TALLY_KEYS = "R1.3.1", Reason.SCHEMA
    TALLY_TYPES = "R1.3.2", Reason.SCHEMA
    TALLY_ENTRIES = "R1.3.3", Reason.OUT_OF_BOUNDS
    TALLY_ENTRY_SIZE = "R1.3.4", Reason.OUT_OF_BOUNDS
    TALLY_ORDER = "R1.3.5", Reason.OUT_OF_BOUNDS
    TALLY_OUTCOMES = "R1.3.6", Reason.OUT_OF_BOUNDS
    TALLY_OUTCOME_SIZE = "R1.3.7", Reason.OUT_OF_BOUNDS
    TALLY_PAGES = "R1.3.8", Reason.OUT_OF_BOUNDS
    TALLY_RESERVED = "R1.3.9", Reason.RESERVED
    # stage 1: proposals
    PROPOSAL_KEYS = "R1.4.1", Reason.SCHEMA
    PROPOSAL_TYPES = "R1.4.2", Reason.SCHEMA
    PROPOSAL_TALLIES = "R1.4.3", Reason.OUT_OF_BOUNDS
    PROPOSAL_TALLY_ORDER = "R1.4.4", Reason.OUT_OF_BOUNDS
    PROPOSAL_SHARES = "R1.4.5", Reason.OUT_OF_BOUNDS
    PROPOSAL_SHARE_SIZE = "R1.4.6", Reason.OUT_OF_BOUNDS
    PROPOSAL_SHARE_ORDER = "R1.4.7", Reason.OUT_OF_BOUNDS
    PROPOSAL_TURN = "R1.4.8", Reason.OUT_OF_BOUNDS
    PROPOSAL_RECORD = "R1.4.9", Reason.OUT_OF_BOUNDS
    PROPOSAL_RECORD_SIZE = "R1.4.10", Reason.OUT_OF_BOUNDS
    PROPOSAL_PAGES = "R1.4.11", Reason.OUT_OF_BOUNDS
    PROPOSAL_RESERVED = "R1.4.12", Reason.RESERVED
    # stage 1: approvals
    APPROVAL_KEYS = "R1.5.1", Reason.SCHEMA
    APPROVAL_TYPES = "R1.5.2", Reason.SCHEMA
    APPROVAL_SIGNATURE = "R1.5.3", Reason.OUT_OF_BOUNDS
    APPROVAL_TURN = "R1.5.4", Reason.OUT_OF_BOUNDS
    APPROVAL_RESERVED = "R1.5.5", Reason.RESERVED
    # stage 1: proofs of equivocation
    PROOF_KEYS = "R1.6.1", Reason.SCHEMA
    PROOF_TYPES = "R1.6.2", Reason.SCHEMA
    PROOF_ORDER = "R1.6.3", Reason.OUT_OF_BOUNDS
    PROOF_PLACE = "R1.6.4", Reason.OUT_OF_BOUNDS
    PROOF_RESERVED = "R1.6.5", Reason.RESERVED
    # stage 1: commitments
    COMMITMENT_KEYS = "R1.7.1", Reason.SCHEMA
    COMMITMENT_TYPES = "R1.7.2", Reason.SCHEMA
    COMMITMENT_SLOTS = "R1.7.3", Reason.OUT_OF_BOUNDS
    COMMITMENT_LAST = "R1.7.4", Reason.OUT_OF_BOUNDS
    COMMITMENT_RESERVED = "R1.7.5", Reason.RESERVED
    # stage 2: domain
    VERSION = "R2.1", Reason.WRONG_VERSION
    KNOWN_KIND = "R2.2", Reason.WRONG_KIND
    SWARM = "R2.3", Reason.WRONG_SWARM
    TOPIC_KIND = "R2.4", Reason.WRONG_KIND
    PROOF_KIND = "R2.5", Reason.WRONG_KIND
    KIND_RESERVED = "R2.6", Reason.RESERVED
    # stage 3: time
    EPOCH_BEGUN = "R3.1", Reason.EPOCH_FUTURE
    ROLLOUT_IN_TIME = "R3.2", Reason.EPOCH_PAST
    CONTRIBUTION_EPOCH_OVER = "R3.3", Reason.EPOCH_FUTURE
    PROOF_IN_TIME = "R3.4", Reason.EPOCH_PAST
    CONTRIBUTION_IN_TIME = "R3.5", Reason.EPOCH_PAST
    COMMITMENT_EPOCH_OVER = "R3.6", Reason.EPOCH_FUTURE
    COMMITMENT_IN_TIME = "R3.7", Reason.EPOCH_PAST
    # stage 4: duplicates
    ROLLOUT_NEW = "R4.1", Reason.SEEN
    CERTIFICATE_NEW = "R4.2", Reason.SEEN
    CONTRIBUTION_NEW = "R4.3", Reason.SEEN
    PROOF_NEW = "R4.4", Reason.SEEN
    CONTRIBUTION_ROOM = "R4.5", Reason.CONTRIBUTION_QUOTA
    COMMITMENT_NEW = "R4.6", Reason.SEEN
    COMMITMENT_ROOM = "R4.7", Reason.CONTRIBUTION_QUOTA
    # stage 5: certificate
    AUTHOR_INTRODUCED = "R5.1", Reason.CERTIFICATE_UNKNOWN
    AUTHOR_CERTIFICATE_COUNTS = "R5.2", Reason.CERTIFICATE_EXPIRED
    AUTHOR_AUDITS = "R5.3", Reason.NOT_AN_AUDITOR
    ACCOUNT_SIGNED = "R5.4", Reason.CERTIFICATE_MALFORMED
    CERTIFICATE_COUNTS = "R5.5", Reason.CERTIFICATE_EXPIRED
    AUTHOR_BONDED = "R5.6", Reason.NO_BOND
    # stage 6: assignment
    SLOT_QUOTA = "R6.1", Reason.SLOT_OVER_QUOTA
    MANIFEST_COMPLETIONS = "R6.2", Reason.OUT_OF_BOUNDS
    KNOWN_FAMILY = "R6.3", Reason.UNKNOWN_FAMILY
    ONE_CONTENT = "R6.4", Reason.EQUIVOCATION
    TURN_EXISTS = "R6.5", Reason.OUT_OF_BOUNDS
    PROPOSERS_TURN = "R6.6", Reason.NOT_ITS_TURN
    ROLLOUT_ISLAND = "R6.7", Reason.WRONG_ISLAND
    CERTIFICATE_ISLAND = "R6.8", Reason.WRONG_ISLAND
    PROOF_ISLAND = "R6.9", Reason.WRONG_ISLAND
    RECORD_WEIGHTS = "R6.10", Reason.OUT_OF_BOUNDS
    TERMS_KNOWN = "R6.11", Reason.TERMS_UNKNOWN
    # stage 7: signature
    NODE_SIGNED = "R7.1", Reason.BAD_SIGNATURE
    PROOF_UNSIGNED = "R7.2", Reason.BAD_SIGNATURE
    PROOF_CONTENTS_SIGNED = "R7.3", Reason.BAD_SIGNATURE
    # stage 8: account
    NOT_BANNED = "R8.1", Reason.BANNED
    ACCOUNT_QUOTA = "R8.2", Reason.ACCOUNT_QUOTA
    NEWCOMER_CAP = "R8.3", Reason.NEWCOMER_CAP
    # stage 9: text policy
    VISIBLE_TEXT = "R9.1", Reason.TEXT_POLICY
    # stage 10: checker
    BEACON_KNOWN = "R10.1", Reason.BEACON_UNKNOWN
    CHECKED_IN_TIME = "R10.2", Reason.CHECKER_TIMEOUT
    CHECKER_SURVIVES = "R10.3", Reason.CHECKER_CRASH
    NO_CODE = "R10.4", Reason.CODE_IN_ANSWER
    SIGNAL = "R10.5", Reason.NO_SIGNAL
    ASSIGNED_LEVEL = "R10.6", Reason.OFF_LEVEL
    NODE_HAD_TIME = "R10.7", Reason.NODE_BUSY
    # stages 11 to 13: copies, likelihood under the own policy, planted phrases
    OWN_WORK = "R11.1", Reason.NEAR_DUPLICATE
    LIKELY = "R12.1", Reason.UNLIKELY
    NO_PLANTED_PHRASE = "R13.1", Reason.PLANTED_PHRASE

    def __init__(self, number: str, reason: Reason) -> None:
        self.number = number
        self.reason = reason

    @property
    def stage(self) -> int:
        """Return the stage of the pipeline that the rule belongs to, from 0 on."""
        return int(self.number[1:].partition(".")[0])

    def __str__(self) -> str:
        return self.number
