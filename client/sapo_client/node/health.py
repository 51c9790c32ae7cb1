"""The health of a running node: collects facts once per interval, assesses them, and reports the findings."""

from __future__ import annotations

import logging
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.records import ChainLook
from sapo_client.node.auditing.funds import FundsWatch
from sapo_client.node.chain_watch import BlockWatch, PrivateWatch, SettlementWatch, StepWatch
from sapo_client.node.checks import Checks
from sapo_client.node.own_groups import OwnGroups
from sapo_client.node.policy_events import PolicyEvents
from sapo_client.node.router_report import router_report
from sapo_client.node.runtime.signed_ahead import epoch_signed_ahead
from sapo_client.observe.assessments.chain import ChainFacts
from sapo_client.observe.clock import SignedAheadFacts
from sapo_client.observe.findings import HealthFinding
from sapo_client.observe.health import (
    INTERVAL_SECONDS,
    START_SECONDS,
    AccountFacts,
    BondFacts,
    CallFacts,
    ChangeFacts,
    HealthFacts,
    IslandFacts,
    PeerFacts,
    RoundFacts,
    assess,
    is_healthy,
)
from sapo_client.observe.printed import PrintedFindings
from sapo_client.observe.reachable import reachable_text
from sapo_client.observe.service_manager import service_manager
from sapo_client.observe.storage import MIB, DiskFacts, StorageFacts
from sapo_client.observe.terminal import say
from sapo_client.observe.webhook import Notification, Webhook
from sapo_client.release import replaced
from sapo_client.running_time import RunningTime
from sapo_client.swarm.reachability import Reachability
from sapo_protocol.epochs import epoch_start_seconds, present_epoch
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Reason
from sapo_verification.islands import IslandMap
from sapo_verification.signing.database import SigningDatabase

if TYPE_CHECKING:
    from sapo_client.learner.backend import Backend
    from sapo_client.learner.calls import RunningCall
    from sapo_client.node.auditing.chain import ChainRole
    from sapo_client.node.runtime.context import NodeContext
    from sapo_client.observe.status import RoundSummary

_LOG = logging.getLogger(__name__)

_CHAIN_SECONDS: Final = 30.0
"""Interval of reading the chain; public endpoints limit the number of requests."""

_FIRST_CHAIN_SECONDS: Final = 5.0
"""The same until the chain has confirmed the clock, before which the node signs and tallies nothing."""

_BEFORE_START_SECONDS: Final = 10.0
"""For the look before the start; a chain that is away must not hold the node up."""

_WINDOW_SECONDS: Final = 300.0
"""Window in which refused messages are counted."""

SUBSCRIPTION_SECONDS: Final = 30.0
"""A node connects before it subscribes to topics; on a busy machine its start takes this long in between."""

_USUAL_AT_FIRST: Final = tuple(map(str, (Reason.CERTIFICATE_UNKNOWN, Reason.TERMS_UNKNOWN, Reason.SEEN)))
"""Reasons that say what this node does not know yet, or had before a restart."""

_ROUNDS: Final = 20
"""Rounds whose median duration counts as normal."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """Counts of messages at a moment."""

    at: float
    accepted: int
    refused: int
    reasons: Counter[str]


class IslandWatch:
    """Records at each assessment whether this epoch's number of islands is known.

    Args:
        clock: returns the Unix time in seconds.
    """

    def __init__(self, manifest: Manifest, islands: IslandMap, clock: Callable[[], float]) -> None:
        self._manifest = manifest
        self._islands = islands
        self._clock = clock
        self._unknown_since: float | None = None

    def facts(self) -> IslandFacts | None:
        """Return the facts on the islands; None in a swarm that is never divided."""
        if not self._islands.is_divided:
            return None
        epoch = present_epoch(self._manifest, self._clock())
        if self._islands.knows(epoch):
            self._unknown_since = None
            return IslandFacts()
        now_seconds = trio.current_time()
        if self._unknown_since is None:
            self._unknown_since = now_seconds
        return IslandFacts(now_seconds - self._unknown_since, self._islands.count(epoch))


class HealthWatch:
    """Assessment of a node's health, once per interval.

    Args:
        bond: returns the facts on the accounts' bonds; None in a swarm without a bond gate.
        funds: what was read of the treasury and of an auditor's bond.
        change: returns the announced change of terms that this node cannot follow yet, if there is one.
        islands: returns the facts on the number of islands; None in a swarm that is never divided.
        storage: returns the facts on stored rollouts of others.
        show: called with each line for the terminal.

    Attributes:
        findings: of the last assessment, errors first.
    """

    def __init__(
        self,
        context: NodeContext,
        *,
        chain: ChainRole,
        learner: Backend,
        bond: Callable[[], BondFacts | None] = lambda: None,
        funds: FundsWatch | None = None,
        change: Callable[[], ChangeFacts | None] = lambda: None,
        islands: Callable[[], IslandFacts | None] = lambda: None,
        storage: Callable[[], StorageFacts | None] = lambda: None,
        show: Callable[[str], None] = say,
    ) -> None:
        self._context = context
        self._chain = chain
        self._learner = learner
        self._bond = bond
        self._funds = funds
        self._change = change
        self._islands = islands
        self._storage = storage
        self._show = show
        self._policy = PolicyEvents(context.data.checkpoints)
        self._own_groups = OwnGroups()
        self._checks = Checks()
        self._steps = StepWatch()
        self._blocks = BlockWatch()
        self._private = PrivateWatch()
        self._settlement = SettlementWatch(context.manifest, context.clock)
        self._durations: deque[float] = deque(maxlen=_ROUNDS)
        self._messages: deque[_Messages] = deque()
        self._printed = PrintedFindings()
        self._progressed: float | None = None
        self._resumes_epoch: int | None = None
        self._paused = False
        self._joined: float | None = None
        self._early: Counter[str] = Counter()
        self._connected: float | None = None
        self._unheard = 0
        self._answered: float | None = None
        self._looked: float | None = None
        self._unregistered_seconds: float | None = None
        self._refusal: str | None = None
        self._view = ChainLook()
        self._trouble: str | None = None
        self._manager = service_manager()
        self._time = RunningTime()
        self._signing = SigningDatabase(context.data.database)
        url = context.config.observe.webhook
        self._webhook = None if url is None else Webhook(url)
        self.findings: tuple[HealthFinding, ...] = ()
        context.events.listen(self._note)

    def round_ended(self, summary: RoundSummary) -> None:
        """Record the end of a round."""
        self._durations.append(summary.round_seconds)
        self._progressed = self._time.seconds()
        self._resumes_epoch = None

    @property
    def waits_for_epoch(self) -> int | None:
        """The epoch with which the next round begins, if all slots of the present one are used."""
        epoch, context = self._resumes_epoch, self._context
        if epoch is None or epoch_start_seconds(context.manifest, epoch) <= context.clock():
            return None
        return epoch

    async def look_before_start(self) -> None:
        """Look at the chain once, if there is one: what the other services do follows from its time."""
        if self._context.manifest.has_chain:
            with trio.move_on_after(_BEFORE_START_SECONDS):
                await self.look_at_chain()

    async def keep_loading(self) -> None:
        """Notify the service manager that the learner loads, until cancelled; health is not assessed yet."""
        while True:
            call = self._learner.call
            self._manager.loading(None if call is None else _call_facts(call))
            await trio.sleep(INTERVAL_SECONDS)

    async def run(self, assessed: Callable[[], None]) -> None:
        """Read the chain and assess the health until cancelled; may be run again after that.

        Args:
            assessed: called after each assessment.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._time.run)
            nursery.start_soon(self._watch_chain, assessed)
            if self._webhook is not None:
                nursery.start_soon(self._webhook.run)
            self._manager.ready()
            while True:
                self.assess()
                assessed()
                await trio.sleep(INTERVAL_SECONDS)

    async def _watch_chain(self, assessed: Callable[[], None]) -> None:
        while self._context.manifest.has_chain:
            await self.look_at_chain()
            self.assess()
            assessed()
            watch = self._context.clock_watch
            awaited = watch.awaits_chain or watch.awaits_block
            await trio.sleep(_FIRST_CHAIN_SECONDS if awaited else _CHAIN_SECONDS)

    async def look_at_chain(self) -> None:
        """Read the chain's time and this account's state."""
        watch = self._context.clock_watch
        jump = watch.jump()
        try:
            self._view = await self._chain.look(watch.wall, claims=self._uses_ledger)
        except LedgerError as error:
            self._trouble, self._looked = str(error), None
        else:
            self._trouble, self._answered = None, self._time.seconds()
            self._blocks.looked(self._chain.chain_seconds)
            self._count_unregistered(self._answered)
            ahead = self._view.clock_ahead_seconds
            watch.compared(jump, ahead_seconds=ahead, agrees=self._view.clock_agrees)
        if block := self._chain.chain_seconds:  # even if another part of the reading failed
            manifest = self._context.manifest
            epoch = present_epoch(manifest, watch.wall())
            watch.note_block(block, epoch_start_seconds=epoch_start_seconds(manifest, epoch))

    def _count_unregistered(self, now: float) -> None:
        """Add the time between two successful readings to the unregistered time, if the account is
        unregistered."""
        author = self._context.author
        # balance and registration must be of one reading: a registration costs coins
        is_registered = (author.account, author.node) in self._chain.status().claims
        if self._view.coins_wei is None or is_registered:
            self._unregistered_seconds = None
        else:
            since = 0.0 if self._looked is None else now - self._looked
            self._unregistered_seconds = (self._unregistered_seconds or 0.0) + since
        self._looked = now

    def assess(self) -> tuple[HealthFinding, ...]:
        """Assess the node, report changes, set the metrics, and return the findings."""
        self._policy.look(self._learner, self._context.events)
        facts = self._facts()
        self.findings = assess(facts)
        self._context.telemetry.metrics.health(self.findings)
        self._manager.assessed(self.findings, facts.call)
        self._tell()
        return self.findings

    def _tell(self) -> None:
        """Report findings that are new, persist or are over to terminal, events and webhook."""
        before = self._printed.codes
        codes = {finding.code for finding in self.findings}
        if before != codes:
            self._context.events.write("health", findings=self.findings)
            self._notify(before - codes)
        for line in self._printed.lines(self.findings, trio.current_time()):
            self._show(line)

    def _notify(self, over: Collection[str]) -> None:
        """Post a change of the findings to the operator's webhook, if there is one."""
        if self._webhook is None:
            return
        lines = [*(f"over: {code}" for code in sorted(over)), *(each.line() for each in self.findings)]
        self._webhook.notify(
            Notification(
                time=datetime.fromtimestamp(self._context.clock(), UTC).isoformat(timespec="seconds"),
                swarm=self._context.manifest.name,
                node=self._context.author.node.hex(),
                healthy=is_healthy(self.findings),
                text="\n".join(lines),
                findings=self.findings,
                over=tuple(sorted(over)),
            )
        )

    def _facts(self) -> HealthFacts:
        has_chain = self._context.manifest.has_chain
        call = self._learner.call
        return HealthFacts(
            rounds=self._round_facts(),
            call=None if call is None else _call_facts(call),
            events=self._policy.recent(),
            own_groups=self._own_groups.facts(),
            checks=self._checks.facts(),
            steps=self._steps.facts(),
            clock=self._context.clock_watch.facts(),
            signed_ahead=self._signed_ahead_facts(),
            chain=self._chain_facts() if has_chain else None,
            settlement=self._settlement.facts() if self._uses_ledger and self._trouble is None else None,
            private=self._private.facts(),
            account=self._account_facts() if self._uses_ledger else None,
            bond=self._bond(),
            auditor_bond=None if self._funds is None else self._funds.auditor_bond(),
            treasury=None if self._funds is None else self._funds.treasury(),
            change=self._change(),
            islands=self._islands(),
            peers=None if self._context.config.swarm.alone else self._peer_facts(),
            disk=self._disk_facts(),
            storage=self._storage(),
            replaced=replaced(),
            log=str(self._context.data.log),
        )

    @property
    def _uses_ledger(self) -> bool:
        return self._context.manifest.has_chain and self._context.config.ledger.enabled

    def _round_facts(self) -> RoundFacts:
        manifest, now = self._context.manifest, self._context.clock()
        resumes = manifest.genesis_seconds - now
        if self._resumes_epoch is not None:
            resumes = epoch_start_seconds(manifest, self._resumes_epoch) - now
        if self._paused:
            resumes = inf
        if resumes > 0 or self._progressed is None:
            self._progressed = self._time.seconds()
        return RoundFacts(
            silent_seconds=self._time.seconds() - self._progressed,
            usual_seconds=median(self._durations) if self._durations else None,
            resumes_in_seconds=resumes if resumes > 0 else None,
            # doppelganger protection may listen for up to twice this long at the start
            start_seconds=START_SECONDS + 2 * self._context.config.swarm.listen_before_signing_seconds,
        )

    def _signed_ahead_facts(self) -> SignedAheadFacts | None:
        manifest, account = self._context.manifest, self._context.author.account
        epoch = epoch_signed_ahead(self._signing, manifest, account, self._context.clock())
        return None if epoch is None else SignedAheadFacts(epoch, epoch_start_seconds(manifest, epoch))

    def _chain_facts(self) -> ChainFacts:
        now = self._time.seconds()
        self._answered = now if self._answered is None else self._answered
        endpoints = self._chain.status().endpoints
        return ChainFacts(
            silent_seconds=now - self._answered,
            trouble=self._trouble,
            wrong=tuple(f"{end.name}: {end.trouble}" for end in endpoints if end.on_wrong_chain),
            usable=not all(end.on_wrong_chain for end in endpoints),
            epoch_seconds=self._context.manifest.epoch_seconds,
            clock_ahead_seconds=self._view.clock_ahead_seconds,
            stalled_seconds=self._blocks.stalled_seconds,
        )

    def _account_facts(self) -> AccountFacts:
        status = self._chain.status()
        if self._unregistered_seconds is None:
            self._refusal = None
        if self._trouble is None:  # else the last error is the chain's absence
            self._refusal = status.last_error or self._refusal  # each new attempt clears the last error
        return AccountFacts(
            account=str(self._context.author.account),
            coins_wei=self._view.coins_wei,
            unregistered_seconds=self._unregistered_seconds,
            stuck=status.stuck,
            trouble=self._refusal,
        )

    def _peer_facts(self) -> PeerFacts:
        now, context = self._time.seconds(), self._context
        connected = len(context.transport.peers())
        if connected or self._connected is None:
            self._connected = now
        first, last = self._count_messages(now)
        reasons = last.reasons - first.reasons
        arrived = last.accepted + last.refused - first.accepted - first.refused
        return PeerFacts(
            connected=connected,
            alone_seconds=now - self._connected,
            bootstrap=len({*context.config.swarm.bootstrap, *context.manifest.bootstrap}),
            unheard=self._unheard,
            arrived=arrived,
            refused=last.refused - first.refused,
            reason=reasons.most_common(1)[0][0] if reasons else None,
            unreachable=self._unreachable(),
        )

    def _unreachable(self) -> str | None:
        transport = self._context.transport
        if transport.reachability() is not Reachability.UNREACHABLE:
            return None
        return reachable_text("unreachable", router_report(transport.router()))

    def _count_messages(self, now: float) -> tuple[_Messages, _Messages]:
        """Return the counts of messages at the start of the window and now.

        A node that has just joined receives messages before their authors' certificates, before it has read
        the ledger's announcements, and once more what it had before a restart. This is normal, so these
        messages are left out, also later while the window includes them.
        """
        telemetry = self._context.telemetry
        reasons = Counter({str(reason): count for reason, count in telemetry.refusals.items()})
        self._joined = now if self._joined is None else self._joined
        if now - self._joined <= _WINDOW_SECONDS:
            self._early = Counter({reason: reasons[reason] for reason in _USUAL_AT_FIRST})
        reasons.subtract(self._early)
        refused = telemetry.messages_refused - self._early.total()
        self._messages.append(_Messages(now, telemetry.accepted, refused, reasons))
        while now - self._messages[0].at > _WINDOW_SECONDS and len(self._messages) > 2:
            self._messages.popleft()
        return self._messages[0], self._messages[-1]

    def _disk_facts(self) -> DiskFacts:
        folder = self._context.data.root
        reserve = self._context.config.observe.disk_reserve_mib * MIB
        return DiskFacts(str(folder), free_bytes=shutil.disk_usage(folder).free, reserve_bytes=reserve)

    def _note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        watches = self._policy, self._own_groups, self._checks, self._steps, self._private, self._settlement
        for watch in watches:
            watch.note(event, fields)
        match event, fields:
            case "paused", _:
                self._paused = True
            case "resumed", _:
                self._paused = False
            case "quota_used", {"until_epoch": int(epoch)}:
                self._resumes_epoch = epoch
                next_round = f"the next round begins with epoch {epoch}"
                self._show(f"all slots of epoch {epoch - 1} are used: {next_round}")
            case "published", {"peers": int(reached)}:
                peers = self._context.transport.peers()
                if reached or not peers:
                    self._unheard = 0
                elif any(peer.connected_since_seconds >= SUBSCRIPTION_SECONDS for peer in peers):
                    self._unheard += 1


def _call_facts(call: RunningCall) -> CallFacts:
    return CallFacts(
        name=call.name,
        seconds=call.seconds,
        usual_seconds=call.usual_seconds,
        deadline_seconds=call.deadline_seconds,
    )
