"""Health of a node: a pure function from observed facts to findings.

A node computes its findings once per interval. The terminal, `sapo status`, `GET /health`, the metrics and
the exit code of `sapo status --healthy` all show the findings of that one assessment, so they say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from sapo_client.observe.assessments.chain import (
    CHAIN_SECONDS,
    ChainFacts,
    PrivateFacts,
    SettlementFacts,
    assess_chain,
    assess_private,
    assess_settlement,
)
from sapo_client.observe.assessments.funds import (
    AuditorBondFacts,
    TreasuryFacts,
    assess_auditor_bond,
    assess_treasury,
)
from sapo_client.observe.assessments.steps import StepFacts, assess_steps
from sapo_client.observe.checks import CheckFacts, assess_checks
from sapo_client.observe.clock import ClockFacts, SignedAheadFacts, assess_clock, assess_signed_ahead
from sapo_client.observe.findings import (
    ISLANDS_HINT,
    UNREACHABLE_HINT,
    FindingCode,
    FindingLevel,
    HealthFinding,
    duration_text,
)
from sapo_client.observe.own_groups import OwnGroupFacts, assess_own_groups
from sapo_client.observe.storage import (
    DiskFacts,
    StorageFacts,
    assess_disk,
    assess_package,
    assess_storage,
)
from sapo_protocol.terms.successor import SETTLED_NOTICE_EPOCHS

INTERVAL_SECONDS: Final = 10.0
"""Seconds between two assessments."""

SLOW_FACTOR: Final = 3.0
"""A round or a call is reported once it takes this many times its usual duration."""

QUIET_SECONDS: Final = 30.0
"""Rounds and calls are not reported before this duration: a canary check can take as long."""

START_SECONDS: Final = 300.0
"""Time in which the first round must end; loading a large model takes minutes."""

REMEMBERED_SECONDS: Final = 3600.0
"""How long an event of the policy or a failed service is reported."""

WAITED_SECONDS: Final = 150.0
"""How long a waiting part of the node is reported after its last failure; it retries within a minute."""

REFUSED_SHARE: Final = 0.5
REFUSED_MESSAGES: Final = 20
"""With fewer messages the refused share is not assessed."""

UNHEARD_ROLLOUTS: Final = 4
"""Consecutive own rollouts without a recipient that are reported; one can be lost as the mesh changes."""

REGISTRATION_SECONDS: Final = 120.0
"""Maximum duration of a registration on a working chain."""

MISMATCH_NATS: Final = 1e-2
"""Mismatch of sampler and trainer, nats per token, above which it is reported; rounding stays far below."""

_KEYS: Final = re.compile(r" [0-9a-f]{64}:\d+(?=: )")
"""The part of an outbox entry's text that differs between registrations of node keys."""


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """Progress of the rounds.

    Attributes:
        silent_seconds: since the last round ended, or since the start.
        usual_seconds: median duration of the last rounds; none before the first round.
        resumes_in_seconds: until genesis, or until the next epoch if all slots of this one are used.
        start_seconds: time in which the first round must end.
    """

    silent_seconds: float = 0.0
    usual_seconds: float | None = None
    resumes_in_seconds: float | None = None
    start_seconds: float = START_SECONDS


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A call to the learner that has not returned.

    Attributes:
        usual_seconds: median of earlier calls of this name; none for the first one.
        deadline_seconds: duration after which the learner is killed and restarted.
    """

    name: str
    seconds: float
    usual_seconds: float | None
    deadline_seconds: float

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed."""
        return self.seconds >= self.deadline_seconds


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """An event of the node's policy, or the failure of a service.

    Attributes:
        text: one sentence about the last of these events.
        count: how many there were.
    """

    code: FindingCode
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The node's account on the chain.

    Attributes:
        coins_wei: balance for transaction fees when it was last read; none before.
        unregistered_seconds: how long the claim on the node key has been missing while the chain answered;
            none if the last query found it.
        stuck: transactions that have waited for a block for longer than their fees should need.
        trouble: why the last transaction was not sent.
    """

    account: str
    coins_wei: int | None
    unregistered_seconds: float | None
    stuck: int = 0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class BondFacts:
    """Bonds or attestations in a swarm whose gate requires one of every account.

    Attributes:
        part: of a whole account that this one counts for, 0 to 1; none while it is unknown.
        unread_seconds: since when the present epoch's bonds should be known and are not; none if they are.
        trouble: why they are not.
        attesters: the accounts that can attest; none where the gate requires a bond.
    """

    account: str
    part: float | None
    unread_seconds: float | None = None
    trouble: str | None = None
    attesters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A change of the swarm's terms that is announced, and that this node cannot follow yet.

    Attributes:
        name: description of the change.
        trouble: why not.
        epochs: until it is in force; at most 0 if it is.
    """

    name: str
    trouble: str
    epochs: int


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """Connections and messages.

    Attributes:
        alone_seconds: since a peer was last connected, or since the start.
        bootstrap: number of known bootstrap addresses.
        unheard: consecutive own rollouts that reached no peer although some were connected.
        arrived: messages in the last minutes.
        refused: those of them that were refused.
        reason: most frequent reason of these refusals.
        unreachable: that peers cannot connect, in one sentence; none if they can, or have not tried.
    """

    connected: int
    alone_seconds: float = 0.0
    bootstrap: int = 0
    unheard: int = 0
    arrived: int = 0
    refused: int = 0
    reason: str | None = None
    unreachable: str | None = None


@dataclass(frozen=True, slots=True)
class IslandFacts:
    """Islands of a swarm that is divided, or may be.

    Attributes:
        unknown_seconds: since when this epoch's number of islands has not been known; none if it is.
        last_count: the newest number that is known; none if there is none.
    """

    unknown_seconds: float | None = None
    last_count: int | None = None


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """Input of an assessment; a part that the node does not have is None."""

    rounds: RoundFacts = RoundFacts()
    call: CallFacts | None = None
    events: tuple[PolicyEvent, ...] = ()
    own_groups: OwnGroupFacts = field(default_factory=OwnGroupFacts)
    checks: CheckFacts = field(default_factory=CheckFacts)
    steps: StepFacts = field(default_factory=StepFacts)
    clock: ClockFacts | None = None
    signed_ahead: SignedAheadFacts | None = None
    chain: ChainFacts | None = None
    settlement: SettlementFacts | None = None
    private: PrivateFacts | None = None
    account: AccountFacts | None = None
    bond: BondFacts | None = None
    auditor_bond: AuditorBondFacts | None = None
    treasury: TreasuryFacts | None = None
    change: ChangeFacts | None = None
    peers: PeerFacts | None = None
    islands: IslandFacts | None = None
    disk: DiskFacts | None = None
    storage: StorageFacts | None = None
    replaced: str | None = None
    log: str = field(default="the log")


def assess(facts: HealthFacts) -> tuple[HealthFinding, ...]:
    """Return the findings, errors first."""
    found = [
        *_rounds(facts),
        *_call(facts),
        *(_event(event, facts.log) for event in facts.events),
        *assess_own_groups(facts.own_groups),
        *assess_checks(facts.checks),
        *assess_steps(facts.steps),
        *(assess_clock(facts.clock) if facts.clock else ()),
        *(assess_signed_ahead(facts.signed_ahead) if facts.signed_ahead else ()),
        *(assess_chain(facts.chain) if facts.chain else ()),
        *(assess_settlement(facts.settlement) if facts.settlement else ()),
        *(_account(facts.account) if facts.account else ()),
        *(_bond(facts.bond) if facts.bond else ()),
        *(assess_auditor_bond(facts.auditor_bond) if facts.auditor_bond else ()),
        *(assess_treasury(facts.treasury) if facts.treasury else ()),
        *(_change(facts.change) if facts.change else ()),
        *(assess_disk(facts.disk) if facts.disk else ()),
        *(assess_storage(facts.storage) if facts.storage else ()),
        *(assess_package(facts.replaced) if facts.replaced else ()),
        *(_peers(facts.peers) if facts.peers else ()),
        *(_islands(facts.islands) if facts.islands else ()),
    ]
    if facts.private is not None:
        found += assess_private(facts.private, found)
    return tuple(sorted(found, key=lambda finding: finding.level is not FindingLevel.ERROR))


def is_healthy(findings: Sequence[HealthFinding]) -> bool:
    """Whether no finding is an error."""
    return all(finding.level is not FindingLevel.ERROR for finding in findings)


def _rounds(facts: HealthFacts) -> Iterator[HealthFinding]:
    rounds = facts.rounds
    if rounds.resumes_in_seconds is not None:
        return
    hint = f"the other findings say why; if there are none, look into {facts.log}"
    if rounds.usual_seconds is None:
        if rounds.silent_seconds > rounds.start_seconds:
            text = f"no round has ended since the start, {duration_text(rounds.silent_seconds)} ago"
            yield HealthFinding(FindingCode.NO_ROUND, FindingLevel.ERROR, text, hint)
    elif rounds.silent_seconds > max(QUIET_SECONDS, SLOW_FACTOR * rounds.usual_seconds):
        usual = duration_text(rounds.usual_seconds)
        text = f"no round has ended for {duration_text(rounds.silent_seconds)}; a round usually takes {usual}"
        yield HealthFinding(FindingCode.NO_ROUND, FindingLevel.ERROR, text, hint)


def _call(facts: HealthFacts) -> Iterator[HealthFinding]:
    call = facts.call
    if call is None or call.usual_seconds is None:
        return
    if call.seconds > max(QUIET_SECONDS, SLOW_FACTOR * call.usual_seconds):
        text = (
            f"the learner has not answered the call {call.name} for {duration_text(call.seconds)};"
            f" {duration_text(call.usual_seconds)} are usual"
        )
        hint = f"nothing: it is killed and restarted after {duration_text(call.deadline_seconds)}"
        yield HealthFinding(FindingCode.LEARNER_HUNG, FindingLevel.ERROR, text, hint)


def _event(event: PolicyEvent, log: str) -> HealthFinding:
    times = f", {event.count} times in the last hour" if event.count > 1 else ""
    level = FindingLevel.ERROR if event.code in _EVENT_ERRORS else FindingLevel.WARNING
    return HealthFinding(event.code, level, event.text + times, _EVENT_HINTS[event.code].format(log=log))


WAITED_FOR: Final = frozenset({FindingCode.SERVER_AWAY, FindingCode.DISK_FULL, FindingCode.LIMIT_REACHED})
"""Events of parts of the node that wait: they retry at least once a minute, and each failure is an event."""

_EVENT_ERRORS: Final = WAITED_FOR | {FindingCode.POLICY_RESET, FindingCode.APPROVED_ELSEWHERE}

_EVENT_HINTS: Final = {
    FindingCode.LEARNER_MOVED: "see whether the GPU still answers (nvidia-smi, the kernel's log), then"
    " restart the node; with learner.device = 'cuda' it does not train without one",
    FindingCode.LEARNER_RESTARTED: "training continues from the last checkpoint; if it happens often,"
    " see {log}",
    FindingCode.POLICY_ROLLED_BACK: "training uses less of others' text until checks of the canary pass",
    FindingCode.POLICY_RESET: "stop the node and restore the learner folder from a copy if you have one",
    FindingCode.SAMPLER_MISMATCH: "sampler and trainer compute different policies: use learner.backend ="
    " transformers, or another precision; {log} has the step's figures",
    FindingCode.CHECKPOINT_UNREADABLE: "the damaged folder was kept beside the others; check the disk",
    FindingCode.CHECKPOINT_FAILED: "it is retried automatically; a restart would lose the steps since the"
    " last one that was written: free space if the disk is full; see {log}",
    FindingCode.GOOD_POLICY_LOST: "nothing: the canary compares with the present policy from now on; check"
    " the disk",
    FindingCode.SERVER_AWAY: "training continues automatically once the server answers: see that it runs,"
    " and that learner.endpoint is its address",
    FindingCode.DISK_FULL: "the node retries automatically; nothing new is stored until there is space",
    FindingCode.LIMIT_REACHED: "the node retries automatically: if nothing else on this machine gives way,"
    " raise the node's limit of open files (ulimit -n), of processes or of memory, and restart it",
    FindingCode.APPROVED_ELSEWHERE: "stop the other node; then restart this one three epochs later, or at"
    " once after `sapo keys signing import FILE` of what `sapo keys signing export` wrote for the other",
    FindingCode.SERVICE_FAILED: "it is restarted automatically; if it happens again, report {log}",
}


def _account(account: AccountFacts) -> Iterator[HealthFinding]:
    missing = account.unregistered_seconds
    if missing is not None and account.coins_wei == 0:
        text = (
            f"account {account.account} holds no coins, so this node cannot register and what it shares is"
            " not paid"
        )
        hint = "have coins sent to the account: the swarm's operator runs `sapo swarm faucet`"
        yield HealthFinding(FindingCode.NO_COINS, FindingLevel.ERROR, text, hint)
    elif missing is not None and missing > REGISTRATION_SECONDS:
        why = f": {_KEYS.sub('', account.trouble)}" if account.trouble else ""
        text = f"this node is not registered on the chain, so what it shares is not paid{why}"
        hint = "`sapo ledger status` shows the transaction; `sapo ledger register` registers by hand"
        yield HealthFinding(FindingCode.NOT_REGISTERED, FindingLevel.ERROR, text, hint)
    elif account.coins_wei == 0:
        text = f"account {account.account} holds no coins, so it can send no transaction"
        hint = "have coins sent to it before its registration ends or a claim is due"
        yield HealthFinding(FindingCode.NO_COINS, FindingLevel.WARNING, text, hint)
    if account.stuck:
        count = "1 transaction has" if account.stuck == 1 else f"{account.stuck} transactions have"
        hint = "raise ledger.max_fee_gwei if fees have risen; see `sapo ledger status`"
        if account.coins_wei == 0:
            hint = "have coins sent to the account: waiting transactions are then sent automatically"
        yield HealthFinding(
            FindingCode.TRANSACTION_STUCK, FindingLevel.WARNING, f"{count} waited too long for a block", hint
        )


def _bond(bond: BondFacts) -> Iterator[HealthFinding]:
    required = "attestation" if bond.attesters else "bond"
    if bond.part == 0:
        text = f"account {bond.account} has no {required} in this swarm: nothing that this node makes counts"
        hint = "`sapo ledger bond` bonds tokens of the account; they count from the next epoch on"
        if bond.attesters:
            whom = " or ".join(bond.attesters)
            hint = f"ask {whom} to attest the account; the attestation counts from the next epoch on"
        yield HealthFinding(FindingCode.NO_BOND, FindingLevel.ERROR, text, hint)
    if bond.unread_seconds is not None and bond.unread_seconds >= CHAIN_SECONDS:
        since = duration_text(bond.unread_seconds)
        text = f"the accounts' {required}s of this epoch could not be read for {since}: {bond.trouble}"
        hint = (
            f"name another RPC endpoint with --rpc; until then the last known {required}s count here, and an"
            " auditor publishes no tally"
        )
        yield HealthFinding(FindingCode.BONDS_UNREAD, FindingLevel.WARNING, text, hint)


def _change(change: ChangeFacts) -> Iterator[HealthFinding]:
    level = FindingLevel.ERROR if change.epochs <= SETTLED_NOTICE_EPOCHS else FindingLevel.WARNING
    hint = (
        "keep the node connected: it asks peer after peer for the document; a newer release of sapo may be"
        " needed; from that epoch on it takes no rollouts by terms that it does not know"
    )
    text = f"this node cannot follow {change.name}: {change.trouble}"
    yield HealthFinding(FindingCode.CHANGE_UNFOLLOWED, level, text, hint)


def _peers(peers: PeerFacts) -> Iterator[HealthFinding]:
    if not peers.connected and peers.alone_seconds > QUIET_SECONDS:
        known = "no bootstrap address is known"
        hint = "others connect to an address that `sapo status` shows; or name one of theirs with --bootstrap"
        if peers.bootstrap:
            hint = "`sapo doctor` tries the bootstrap addresses; name another one with --bootstrap"
            known = "the bootstrap address leads to none"
        if peers.bootstrap > 1:
            known = f"none of the {peers.bootstrap} bootstrap addresses leads to one"
        text = f"no peer has been connected for {duration_text(peers.alone_seconds)}; {known}"
        yield HealthFinding(FindingCode.NO_PEERS, FindingLevel.WARNING, text, hint)
    if peers.connected and peers.unheard >= UNHEARD_ROLLOUTS:
        text = f"the last {peers.unheard} rollouts reached none of the {peers.connected} connected peers"
        hint = "they may refuse this node: check clock and version, then restart it"
        yield HealthFinding(FindingCode.PEERS_REFUSE, FindingLevel.WARNING, text, hint)
    if peers.unreachable is not None:
        yield HealthFinding(
            FindingCode.UNREACHABLE, FindingLevel.WARNING, peers.unreachable, UNREACHABLE_HINT
        )
    if peers.arrived >= REFUSED_MESSAGES and peers.refused > REFUSED_SHARE * peers.arrived:
        share = f"{peers.refused / peers.arrived:.0%}".replace("%", " %")
        text = (
            f"{share} of {peers.arrived} messages in the last 5 minutes were refused,"
            f" most often for {peers.reason}"
        )
        hint = "for epoch_past or epoch_future check this machine's clock; else see `sapo peers`"
        yield HealthFinding(FindingCode.REFUSAL_RATE, FindingLevel.WARNING, text, hint)


def _islands(islands: IslandFacts) -> Iterator[HealthFinding]:
    since = islands.unknown_seconds
    if since is None or since < CHAIN_SECONDS:
        return
    text = f"the swarm's number of islands has not been known for {duration_text(since)}"
    if islands.last_count is None:
        level, what = FindingLevel.ERROR, "so this node is on none and shares nothing"
    else:
        level, what = (
            FindingLevel.WARNING,
            f"so this node continues with {islands.last_count}, the last known one",
        )
    yield HealthFinding(FindingCode.ISLANDS_UNKNOWN, level, f"{text}, {what}", ISLANDS_HINT)


class HealthReport(BaseModel):
    """The response of `GET /health`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["sapo/health/1"] = "sapo/health/1"
    healthy: bool
    state: str
    findings: tuple[HealthFinding, ...] = ()
