"""Verification: stages 9 to 11, from an ``AdmittedRollout`` to a ``VerifiedRollout``; and stage 13 behind it.

The task is derived from the beacon, its prompt and the rewards by the jailed checkers;
nothing of it came from the author. What is decided about a rollout is decided once.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, SwarmId
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.observer import Observer
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.screens.screens import Screens
from sapo_verification.tasks.answers import holds_code
from sapo_verification.types import AdmittedRollout, VerifiedRollout

MAX_REMEMBERED: Final = 2048
"""What was audited is not checked again when it is sampled; 4 KiB each."""


_AUTHORS_FAULT: Final = {
    Failure.TIMEOUT: Rule.CHECKED_IN_TIME,
    Failure.CRASH: Rule.CHECKER_SURVIVES,
    Failure.MALFORMED: Rule.CHECKER_SURVIVES,
}
"""Failed checks that the answers may have caused; any other is our own trouble and nobody's evidence."""


class CheckResult(Protocol):
    """What a checker found out about one task's completions."""

    @property
    def prompt(self) -> str:
        """The re-derived prompt."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """One reward per completion, 0.0 or 1.0."""


class Verifier:
    """The road through the checkers; what it finds becomes the author's evidence, once.

    Args:
        check: the jailed checkers; raises ``CheckFailed``.
        beacon_of: the beacon of an epoch, or none while it is unknown.
    """

    def __init__(
        self,
        swarm_id: SwarmId,
        check: Callable[[Task, Sequence[bytes]], Awaitable[CheckResult]],
        beacon_of: Callable[[int], Digest | None],
        reputation: Reputation,
        observer: Observer,
        screens: Screens,
    ) -> None:
        self._swarm_id = swarm_id
        self._check = check
        self._beacon_of = beacon_of
        self._reputation = reputation
        self._observer = observer
        self._screens = screens
        self._remembered: OrderedDict[ContentId, VerifiedRollout] = OrderedDict()
        self._refused: OrderedDict[ContentId, RemoteProtocolError] = OrderedDict()

    def task_of(self, epoch: int, account: Account, family: int, slot: int) -> Task:
        """The task that a slot holds.

        Raises:
            RemoteProtocolError: ``BEACON_UNKNOWN``.
        """
        beacon = self._beacon_of(epoch)
        if beacon is None:
            raise RemoteProtocolError(Rule.BEACON_KNOWN, f"the beacon of epoch {epoch} is not known yet")
        return assigned_task(self._swarm_id, beacon, account, family, slot)

    async def verify(self, admitted: AdmittedRollout) -> VerifiedRollout:
        """The rollout with its prompt and rewards.

        Raises:
            RemoteProtocolError: ``TEXT_POLICY``, ``BEACON_UNKNOWN``, ``CHECKER_TIMEOUT``,
                ``CHECKER_CRASH`` or ``NEAR_DUPLICATE``.
        """
        if (known := self._remembered.get(admitted.content_id)) is not None:
            return known
        if (refusal := self._refused.get(admitted.content_id)) is not None:
            raise RemoteProtocolError(refusal.rule, refusal.detail)
        try:
            verified = await self._verified(admitted)
        except RemoteProtocolError as error:
            self._observer.refused(error.rule, admitted.content_id, admitted.account, error.detail)
            raise
        self._learn_from(verified)
        return verified

    def is_quarantined(self, verified: VerifiedRollout) -> bool:
        """Whether a verified rollout is kept out of batches (stage 13)."""
        if not self._screens.holds_planted_phrase(verified):
            return False
        detail = "it holds a phrase that its account alone keeps using"
        self._observer.refused(Rule.NO_PLANTED_PHRASE, verified.content_id, verified.account, detail)
        return True

    async def _verified(self, admitted: AdmittedRollout) -> VerifiedRollout:
        rollout = admitted.rollout
        self._require(Rule.VISIBLE_TEXT, admitted, self._screens.text_fault(admitted))
        task = self.task_of(rollout.epoch, rollout.account, rollout.family, rollout.slot)
        checked = await self._checked(task, admitted)
        verified = VerifiedRollout(admitted, task, checked.prompt, checked.rewards)
        if (known := self._remembered.get(admitted.content_id)) is not None:
            return known  # somebody else asked for it meanwhile
        self._require(Rule.OWN_WORK, admitted, self._screens.duplicate_fault(verified))
        return verified

    def _require(self, rule: Rule, admitted: AdmittedRollout, fault: str | None) -> None:
        """Nothing, if there is no fault; else it is the author's, and stays decided."""
        if fault is None:
            return
        rollout = admitted.rollout
        self._reputation.record_fault(rollout.account, rollout.family, rollout.epoch, rule.reason)
        refusal = RemoteProtocolError(rule, fault)
        self._refused[admitted.content_id] = refusal
        if len(self._refused) > MAX_REMEMBERED:
            self._refused.popitem(last=False)
        raise refusal

    async def _checked(self, task: Task, admitted: AdmittedRollout) -> CheckResult:
        rollout = admitted.rollout
        try:
            return await self._check(task, rollout.completions)
        except CheckFailed as failed:
            rule = _AUTHORS_FAULT.get(failed.reason)
            if rule is not None:
                self._reputation.record_fault(rollout.account, rollout.family, rollout.epoch, rule.reason)
            raise RemoteProtocolError(rule or Rule.CHECKER_SURVIVES, str(failed)) from failed

    def _learn_from(self, verified: VerifiedRollout) -> None:
        if verified.content_id in self._remembered:
            return
        rollout = verified.admitted.rollout
        if verified.is_informative:
            self._reputation.record_good(rollout.account, rollout.family, rollout.epoch)
        else:
            rule = Rule.NO_CODE if any(map(holds_code, rollout.completions)) else Rule.SIGNAL
            self._reputation.record_fault(rollout.account, rollout.family, rollout.epoch, rule.reason)
            detail = f"all {len(rollout.completions)} completions earned {verified.rewards[0]:.0f}"
            self._observer.refused(rule, verified.content_id, verified.account, detail)
        self._screens.learn(verified)
        self._observer.verified(verified)
        self._remembered[verified.content_id] = verified
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
