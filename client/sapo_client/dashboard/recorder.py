"""Recorder of a running node for its page: figures for the history, the latest rollouts, live decisions.

It observes the engine and the event file's events. Both call it in the middle of the node's work, so it only
appends to memory; a thread writes the history every ten seconds.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import trio

from sapo_client.dashboard.history import FigureHistory, FinalEpoch, Sample
from sapo_client.dashboard.refusals import RefusedMessages
from sapo_client.dashboard.rollouts import RolloutUse, SeenRollout, SeenRollouts
from sapo_client.observe.plain import JSON, to_json
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_protocol.suite import Suite
from sapo_verification.observer import Observer
from sapo_verification.types import AdmittedRollout, VerifiedRollout

WRITE_SECONDS: Final = 10.0
"""Seconds between two writes of the history; a killed node loses this much of its curves."""

MAX_DECISIONS: Final = 512
MAX_TALLIED: Final = 16_384
"""Maximum number of accounts whose decisions are counted; the least recently counted is dropped."""

MAX_SAMPLES: Final = 100_000
"""Maximum number of values before the next write; it is reached only while the disk does not answer."""

_DECISIONS: Final = frozenset(
    {
        "published",
        "admitted",
        "verified",
        "refused",
        "refusals_counted",
        "equivocation_proved",
        "step",
        "health",
    }
)
_STEP_FIGURES: Final = {
    "batch_reward": "batch",
    "pool": "pool",
    "peers": "peers",
    "seconds": "seconds",
    "step": "step",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """One event of the live stream."""

    number: int
    event: str
    fields: dict[str, JSON]


class DashboardRecorder(Observer):
    """Records the data of a node's page.

    Args:
        history: takes the figures.
        own: this node's account.
    """

    def __init__(
        self, history: FigureHistory, suite: Suite, own: Account, clock: Callable[[], float] = time.time
    ) -> None:
        self.history: Final = history
        self.rollouts: Final = SeenRollouts()
        self.refusals: Final = RefusedMessages()
        self._suite = suite
        self._own = own
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._epochs: deque[FinalEpoch] = deque()
        self._decisions: deque[Decision] = deque(maxlen=MAX_DECISIONS)
        self._number = 0
        self._verdicts: OrderedDict[str, Counter[str]] = OrderedDict()

    async def run(self) -> None:
        """Write the history until cancelled, and once more then."""
        try:
            while True:
                await trio.sleep(WRITE_SECONDS)
                await trio.to_thread.run_sync(self.write)
        finally:
            self.write()

    def write(self) -> None:
        """Write what waits to the history."""
        waiting = [self._samples.popleft() for _ in range(len(self._samples))]
        self.history.add(waiting)
        while self._epochs:
            self.history.add_epoch(self._epochs.popleft())

    @property
    def last(self) -> int:
        """Number of the last decision."""
        return self._number

    def since(self, number: int) -> Iterator[Decision]:
        """Yield the kept decisions after a number, oldest first."""
        for decision in list(self._decisions):
            if decision.number > number:
                yield decision

    def verdicts_of(self, account: str) -> Mapping[str, int]:
        """Return how often each decision was made about an account's rollouts since the start."""
        return self._verdicts.get(account, Counter())

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Take an event of the node."""
        self._measure(event, fields)
        if event in ("admitted", "verified", "refused") and fields.get("account") is not None:
            self._count(str(fields["account"]), str(fields.get("reason", event)))
        if event == "refused":
            self.refusals.note(fields, self._clock())
        if event in _DECISIONS:
            self._number += 1
            shown = {name: to_json(value) for name, value in fields.items() if name not in ("local", "trace")}
            shown |= {"at": self._clock()}
            self._decisions.append(Decision(self._number, event, shown))

    def note_refusal(self, fields: Mapping[str, object]) -> None:
        """Take the refusal of a message that is no event of its own, but counted in a later one."""
        self.refusals.note(fields, self._clock())

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Keep a rollout from outside."""
        self._keep(admitted).forwarder = source

    def displaced(self, admitted: AdmittedRollout) -> None:
        """Note that it will not be audited."""
        if seen := self.rollouts.get(admitted.content_id):
            seen.displaced = True

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Note which rule an admitted rollout broke."""
        self._keep(admitted).broken = rule, detail

    def verified(self, rollout: VerifiedRollout) -> None:
        """Keep prompt and rewards, and measure the reward."""
        seen = self._keep(rollout.admitted)
        seen.prompt, seen.rewards = rollout.prompt, rollout.rewards
        name = self._suite.families[rollout.admitted.rollout.family].name
        side = "own" if rollout.account == self._own else "others"
        self._sample(side, rollout.mean_reward)
        self._sample(f"{side}/{name}", rollout.mean_reward)

    def _keep(self, admitted: AdmittedRollout) -> SeenRollout:
        own = admitted.account == self._own
        return self.rollouts.keep(admitted.content_id, SeenRollout(admitted.rollout, own, self._clock()))

    def _measure(self, event: str, fields: Mapping[str, object]) -> None:
        match event, fields:
            case "step", {"step": int(step)}:
                self._stepped(step, fields)
            case "refused", {"reason": reason}:
                count = fields.get("count", 1)
                self._sample(f"refused/{reason}", float(count) if isinstance(count, int) else 1.0)
            case "refusals_counted", {"reasons": dict(reasons)}:
                for reason, count in reasons.items():
                    self._sample(f"refused/{reason}", float(count))
            case "epoch_final", {"epoch": int(epoch), "total": int(total), "contribution_root": bytes(root)}:
                self._epochs.append(FinalEpoch(epoch, self._clock(), total, root.hex()))
            case "canary", {"rewards": list(rewards), "shadow_rewards": list(own_alone)}:
                for reward in rewards:
                    self._sample("held_out", float(reward))
                for reward in own_alone:
                    self._sample("held_out_own_alone", float(reward))
            case _:
                if event in ("published", "admitted"):
                    self._sample(event, 1.0)

    def _count(self, account: str, verdict: str) -> None:
        self._verdicts.setdefault(account, Counter())[verdict] += 1
        if len(self._verdicts) > MAX_TALLIED:
            self._verdicts.popitem(last=False)

    def _stepped(self, step: int, fields: Mapping[str, object]) -> None:
        for field, figure in _STEP_FIGURES.items():
            value = fields.get(field)
            if isinstance(value, int | float):
                self._sample(figure, float(value))
        external, local = fields.get("external"), fields.get("local")
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        if isinstance(external, list):
            self._sample("external", float(len(external)))
            for group in external:
                self._used(group["content_id"], RolloutUse(step, str(group["use"]), at))
        if isinstance(local, list):
            for content_id in local:
                if (seen := self.rollouts.get(content_id)) and seen.has_advantage:
                    seen.uses.append(RolloutUse(step, "trained", at))

    def _used(self, content_id: ContentId, use: RolloutUse) -> None:
        if seen := self.rollouts.get(content_id):
            seen.uses.append(use)

    def _sample(self, figure: str, value: float) -> None:
        self._samples.append(Sample(figure, self._clock(), value))
