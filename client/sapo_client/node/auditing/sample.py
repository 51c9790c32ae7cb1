"""The auditor's side of audits by sample: it asks peers for the drawn groups of an epoch, and checks them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.auditing.holders import Holders
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog
from sapo_client.swarm.transport import Transport, TransportError
from sapo_protocol import merkle
from sapo_protocol.audits.draw import draw, draw_seconds
from sapo_protocol.audits.groups import GroupRequest, OpenedGroup, parse_opened_groups
from sapo_protocol.epochs import present_epoch
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.requests import parse_response
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.topics import groups_protocol
from sapo_verification.admission.sampled_audits import DrawnAccount, JudgedGroup
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 0.5

_PATIENCE_SHARE: Final = 1 / 6
_MIN_PATIENCE_SECONDS: Final = 2.0
"""Time-out of an answer, a small part of the two graces for all answers, so that a dozen silent peers are
tolerated."""


class DrawChain(Protocol):
    """The functions of a chain that a draw needs."""

    async def block_hash_from(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the first block from a moment in the past on."""

    async def live_accounts(self) -> Collection[tuple[Account, NodeId]]:
        """Return the accounts that are registered now, with their nodes."""


@dataclass(slots=True)
class _Account:
    """An audited account, its opened groups, and the number of peers that were asked.

    Attributes:
        due_seconds: when the next peer is asked, on trio's clock.
        is_asking: whether a request is running, or its response is being checked.
    """

    drawn: DrawnAccount
    judged: dict[int, JudgedGroup] = field(default_factory=dict)
    asked: int = 0
    due_seconds: float = 0.0
    is_asking: bool = False

    @property
    def missing(self) -> tuple[int, ...]:
        """The drawn slots that no peer has opened yet."""
        return tuple(slot for slot in self.drawn.slots if slot not in self.judged)

    @property
    def failed(self) -> int:
        """Number of drawn groups that are not payable or were not opened."""
        return len(self.missing) + sum(group.is_payable is False for group in self.judged.values())

    @property
    def undecided(self) -> int:
        """Number of drawn groups that this node was too busy to check."""
        return sum(group.is_payable is None for group in self.judged.values())


class SampleAudit:
    """Service that audits the newest ended epoch, in a swarm with audits by sample.

    Its results are in memory only: a restarted auditor asks again.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        ledger: DrawChain,
        beacons: Beacons,
        clock: Clock,
        events: EventLog,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._ledger = ledger
        self._beacons = beacons
        self._clock = clock
        self._events = events
        self._protocol = groups_protocol(engine.manifest.swarm_id)
        self._holders = Holders(engine, transport)
        patience_seconds = _PATIENCE_SHARE * grace_seconds(engine.manifest)
        self._patience_seconds = max(_MIN_PATIENCE_SECONDS, patience_seconds)
        self._epoch = -1
        self._accounts: tuple[_Account, ...] | None = None
        self._reported: str | None = None

    async def run(self) -> None:
        """Audit until cancelled; may be run again after that."""
        async with trio.open_nursery() as nursery:  # a peer that does not answer delays no other one
            while True:
                await self._look(nursery)
                await trio.sleep(_LOOK_SECONDS)

    def is_known(self, epoch: int) -> bool:
        """Whether the draw of an epoch is known."""
        return epoch == self._epoch and self._accounts is not None

    def is_done(self, epoch: int) -> bool:
        """Whether every drawn group of an epoch was opened and checked."""
        return self.is_known(epoch) and not any(one.missing for one in self._accounts or ())

    def points(
        self, epoch: int, _live: Collection[Account], units: Mapping[Account, Fraction] | None, /
    ) -> tuple[tuple[Account, int], ...]:
        """Return the points of every drawn account that has any, ascending by account.

        An account that was registered at the draw is paid, whether or not it still is.

        Args:
            units: each account's part of a whole account by the swarm's gate; None if every account counts in
                full.
        """
        counted = [
            (
                one.drawn.commitment.account,
                self._engine.sampled.points(one.drawn, one.failed, units, undecided=one.undecided),
            )
            for one in self._of(epoch)
        ]
        return tuple((account, points) for account, points in counted if points)

    def evidence_root(self, epoch: int) -> Digest:
        """Return the Merkle root over the ascending content ids of the drawn groups that are paid."""
        paid = (group.content_id for group in self.judged(epoch) if group.is_payable)
        return merkle.root(sorted(map(Digest, paid)))

    def judged(self, epoch: int) -> tuple[JudgedGroup, ...]:
        """Return the drawn groups of an epoch that were opened and checked."""
        return tuple(group for one in self._of(epoch) for group in one.judged.values())

    def _of(self, epoch: int) -> tuple[_Account, ...]:
        return (self._accounts or ()) if epoch == self._epoch else ()

    async def _look(self, nursery: trio.Nursery) -> None:
        """Make the draw as soon as possible, then continue with every drawn account that is due."""
        manifest, now_seconds = self._engine.manifest, self._clock()
        epoch = present_epoch(manifest, now_seconds) - 1
        if epoch < 0:
            return  # none has ended
        if epoch != self._epoch:
            self._epoch, self._accounts = epoch, None
        if self._accounts is None:
            if now_seconds < draw_seconds(manifest, epoch) + manifest.finality_seconds:
                return
            await self._beacons.obtain(epoch)  # tasks are derived from it
            self._accounts = await self._draw(epoch)
        self._holders.look()
        due = [
            one
            for one in self._of(epoch)
            if one.missing and not one.is_asking and one.due_seconds <= trio.current_time()
        ]
        for account in sorted(due, key=lambda one: one.asked):  # it is not waited for any longer
            account.is_asking = True
            nursery.start_soon(self._audit, account)

    async def _draw(self, epoch: int) -> tuple[_Account, ...] | None:
        """Return the accounts that are drawn, or None while the chain is away or has no block for it yet."""
        manifest = self._engine.manifest
        try:
            block_hash = await self._ledger.block_hash_from(math.ceil(draw_seconds(manifest, epoch)))
            registered = {account for account, _ in await self._ledger.live_accounts()}
        except LedgerError as error:  # all of these are temporary
            if str(error) != self._reported:
                self._reported = str(error)
                self._events.write("ledger_error", text=f"no draw for epoch {epoch} yet: {error}")
            return None
        self._reported = None
        drawn = self._engine.sampled.drawn(epoch, draw(manifest.swarm_id, epoch, block_hash), registered)
        self._events.write("drawn", epoch=epoch, accounts=len(drawn))
        return tuple(map(_Account, drawn))

    async def _audit(self, account: _Account) -> None:
        """Check the drawn groups of an account that are stored here, and ask one peer for the others."""
        commitment = account.drawn.commitment
        request = GroupRequest(commitment.account, commitment.epoch, account.missing)
        try:
            groups = self._engine.sampled.open_groups(request) or await self._ask(account, request)
            for group in groups:
                judged = await self._engine.sampled.check(commitment, group, self._clock())
                if judged is not None and judged.slot in request.slots:
                    account.judged[judged.slot] = judged
        finally:
            account.is_asking = False

    async def _ask(self, account: _Account, request: GroupRequest) -> tuple[OpenedGroup, ...]:
        """Return the groups that the next peer opens; none while all peers are at their limits."""
        peer_id = self._holders.take(account.drawn.commitment, account.asked)
        if peer_id is None:
            return ()
        account.asked += 1
        try:
            with self._holders.asking(peer_id), trio.fail_after(self._patience_seconds):
                answer = await self._transport.request(
                    peer_id, self._protocol, request.to_bytes(), max_response_bytes=MAX_ANSWER_BYTES
                )
        except (TransportError, trio.TooSlowError):
            return ()  # the next peer is asked at once
        account.due_seconds = trio.current_time() + _LOOK_SECONDS * 2**account.asked
        try:
            return parse_opened_groups(parse_response(answer))
        except RemoteProtocolError:
            return ()
