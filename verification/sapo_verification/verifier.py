"""Verification: stages 9 to 11, from an ``AdmittedRollout`` to a ``VerifiedRollout``; then stage 13.

The task is derived from the beacon, its prompt and the rewards by the jailed checkers; none of them comes
from the author. A rollout is decided once, also across restarts: its evidence, its outcome and what observers
write to the same connection are stored in one transaction.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.epoch_count import EpochCount
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.levels import Levels
from sapo_verification.observer import Observer
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.screens.screens import Screens
from sapo_verification.store import transaction
from sapo_verification.types import AdmittedRollout, VerifiedRollout

MAX_REMEMBERED: Final = 2048
"""Verified rollouts kept in memory, 4 KiB each, so that an audited one is not checked again when it is
sampled."""


_AUTHORS_FAULT: Final = {
    Failure.TIMEOUT: Rule.CHECKED_IN_TIME,
    Failure.CRASH: Rule.CHECKER_SURVIVES,
    Failure.MALFORMED: Rule.CHECKER_SURVIVES,
}
"""Failures that the answers may have caused; any other one is no evidence."""


class CheckResult(Protocol):
    """Result of checking one task's completions."""

    @property
    def prompt(self) -> str:
        """The re-derived prompt."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """One reward per completion, 0.0 or 1.0."""


Check = Callable[[Task, Sequence[bytes]], Awaitable[CheckResult]]
"""Derives a task and scores completions in the jail; raises ``CheckFailed``."""

T = TypeVar("T")


class AuthorFault(RemoteProtocolError):
    """A refusal that is evidence against the author.

    Attributes:
        is_lasting: whether the same rollout would always be refused for it.
    """

    def __init__(self, rule: Rule, detail: str, *, is_lasting: bool) -> None:
        super().__init__(rule, detail)
        self.is_lasting = is_lasting


class Verifier:
    """Verifier of admitted rollouts; each result becomes evidence for or against the author once.

    Args:
        check: the jailed checkers; raises ``CheckFailed``.
        levels: gives beacons, and the families that a slot may have.
        connection: that of ``reputation`` and ``count``, for one transaction per decision.
    """

    def __init__(
        self,
        *,
        check: Check,
        levels: Levels,
        reputation: Reputation,
        count: EpochCount,
        observer: Observer,
        screens: Screens,
        connection: sqlite3.Connection,
    ) -> None:
        self._check = check
        self._levels = levels
        self._reputation = reputation
        self._count = count
        self._observer = observer
        self._screens = screens
        self._connection = connection
        self._remembered: OrderedDict[ContentId, VerifiedRollout] = OrderedDict()
        self._refused: OrderedDict[ContentId, RemoteProtocolError] = OrderedDict()

    def task_of(self, epoch: int, account: Account, family: int, slot: int) -> Task:
        """Return the task that a slot holds.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        beacon = self._levels.beacon(epoch)
        return assigned_task(self._levels.swarm_id, beacon, account=account, family=family, slot=slot)

    async def verify(self, admitted: AdmittedRollout) -> VerifiedRollout:
        """Return the rollout with its prompt and rewards.

        Raises:
            RemoteProtocolError: ``TEXT_POLICY``, ``BEACON_UNKNOWN``, ``OFF_LEVEL``, ``CHECKER_TIMEOUT``,
                ``CHECKER_CRASH``, ``NODE_BUSY`` or ``NEAR_DUPLICATE``.
        """
        if (known := self._decided(admitted.content_id)) is not None:
            return known
        try:
            verified = await self._verified(admitted)
        except RemoteProtocolError as error:
            if admitted.content_id not in self._refused:  # else another caller has decided it meanwhile
                with transaction(self._connection):
                    self._record_refusal(admitted, error)
            raise
        if verified.content_id not in self._remembered:
            with transaction(self._connection):
                self._record_result(verified)
            _remember(self._remembered, verified.content_id, verified)
        return verified

    async def _verified(self, admitted: AdmittedRollout) -> VerifiedRollout:
        rollout = admitted.rollout
        if (fault := self._screens.text_fault(admitted)) is not None:
            raise AuthorFault(Rule.VISIBLE_TEXT, fault, is_lasting=True)
        task = self.task_of(rollout.epoch, rollout.account, rollout.family, rollout.slot)
        self._levels.require_assigned(rollout)
        checked = await self._checked(task, admitted)
        if (known := self._decided(admitted.content_id)) is not None:
            return known  # another caller verified it meanwhile
        verified = VerifiedRollout(admitted, task, checked.prompt, checked.rewards)
        if (fault := self._screens.duplicate_fault(verified)) is not None:
            raise AuthorFault(Rule.OWN_WORK, fault, is_lasting=True)
        return verified

    def _decided(self, content_id: ContentId) -> VerifiedRollout | None:
        """Return a rollout that was verified before; None if it was not decided.

        Raises:
            RemoteProtocolError: it was refused for good.
        """
        known, refusal = self._remembered.get(content_id), self._refused.get(content_id)
        if known is None and refusal is not None:
            raise RemoteProtocolError(refusal.rule, refusal.detail)
        return known

    async def _checked(self, task: Task, admitted: AdmittedRollout) -> CheckResult:
        try:
            return await self._check(task, admitted.rollout.completions)
        except CheckFailed as failed:
            if (rule := _AUTHORS_FAULT.get(failed.reason)) is not None:
                raise AuthorFault(rule, str(failed), is_lasting=False) from failed
            rule = Rule.NODE_HAD_TIME if failed.reason.decides_nothing else Rule.CHECKER_SURVIVES
            raise RemoteProtocolError(rule, str(failed)) from failed

    def _record_refusal(self, admitted: AdmittedRollout, error: RemoteProtocolError) -> None:
        if isinstance(error, AuthorFault):
            self._record_fault(admitted, error.rule)
            if error.is_lasting:
                _remember(self._refused, admitted.content_id, error)
        self._observer.refused(error.rule, admitted, error.detail)

    def _record_result(self, verified: VerifiedRollout) -> None:
        rollout = verified.admitted.rollout
        if not verified.is_informative:
            rule = Rule.NO_CODE if self._screens.holds_code(verified) else Rule.SIGNAL
            self._record_fault(verified.admitted, rule)
            detail = f"all {len(rollout.completions)} completions earned {verified.rewards[0]:.0f}"
            self._observer.refused(rule, verified.admitted, detail)
        elif not self._count.is_decided(verified.content_id):
            self._reputation.record_good(rollout.account, rollout.family, rollout.epoch)
        self._screens.learn(verified)
        self._observer.verified(verified)
        if self._screens.holds_planted_phrase(verified):  # paid nevertheless: it was counted above
            detail = "its account repeats a phrase in this family that most other accounts do not use"
            self._observer.refused(Rule.NO_PLANTED_PHRASE, verified.admitted, detail)

    def _record_fault(self, admitted: AdmittedRollout, rule: Rule) -> None:
        """Record evidence against the author, unless the rollout was decided before a restart."""
        if not self._count.is_decided(admitted.content_id):
            rollout = admitted.rollout
            self._reputation.record_fault(rollout.account, rollout.family, rollout.epoch, rule.reason)


def _remember(memory: OrderedDict[ContentId, T], content_id: ContentId, value: T) -> None:
    memory[content_id] = value
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)
