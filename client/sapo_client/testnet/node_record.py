"""A node's record, accumulated from the events of its event file; pure.

The live view, the report and the verdict use no other source, so their statements can be checked against the
file by hand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Final

from sapo_client.observe.events import Event
from sapo_client.observe.plain import JSON
from sapo_client.observe.refusal_events import counts_by_reason
from sapo_protocol.errors import Reason


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One training step, as the node recorded it.

    Attributes:
        reward: mean over the node's own completions.
        local: number of own groups in the batch.
        external: content ids of others' groups in the batch.
        unproven: external groups that this node had not both admitted and verified before.
        families: mean reward of the own completions by family.
    """

    step: int
    epoch: int
    time: str
    reward: float
    local: int
    external: tuple[str, ...]
    unproven: tuple[str, ...]
    families: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgedTallies:
    """One node's assessment of the auditors' tallies of a final epoch; accounts in hexadecimal.

    Attributes:
        counted: authors of the tallies that the settlement names.
        late: authors of tallies that arrived after it.
        apart: points by which a tally lies outside the counted ones.
    """

    counted: frozenset[str]
    late: frozenset[str]
    apart: Mapping[str, int]


@dataclass(slots=True)
class NodeRecord:
    """Data about one node from its events so far.

    Attributes:
        refused: refusals by reason; a flood counts each message that it dropped.
        refused_messages: reason by digest of the message, where it never became a rollout.
        refused_contents: reasons by content id, where an admitted rollout went no further.
        floods: messages dropped without being parsed, by peer id of the forwarder, which is empty where the
            node only counted them.
        tallies: this node's own count of points, by epoch and account.
        posted: epochs that this node saw on the ledger.
        judged: by epoch, this node's assessment of the auditors' tallies.
        max_peers: maximum number of peers connected at one time, including attackers.
        starts: number of times the node was started.
        service_failures: faults inside the node that its supervisor caught.
    """

    name: str
    account: str = ""
    peer_id: str = ""
    addresses: tuple[str, ...] = ()
    starts: int = 0
    stopped: bool = False
    steps: list[RecordedStep] = field(default_factory=list)
    published: set[str] = field(default_factory=set)
    admitted: dict[str, str] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    refused_messages: dict[str, str] = field(default_factory=dict)
    refused_contents: dict[str, set[str]] = field(default_factory=dict)
    floods: Counter[str] = field(default_factory=Counter)
    tallies: dict[int, dict[str, int]] = field(default_factory=dict)
    posted: set[int] = field(default_factory=set)
    judged: dict[int, JudgedTallies] = field(default_factory=dict)
    peers: int = 0
    max_peers: int = 0
    pool: int = 0
    learner_restarts: int = 0
    ledger_errors: list[str] = field(default_factory=list)
    service_failures: list[str] = field(default_factory=list)

    @property
    def without_advantage(self) -> int:
        """Groups of others whose completions all earned the same reward: honest, but without advantage."""
        return self.refused[Reason.NO_SIGNAL]

    @property
    def refusals(self) -> int:
        """Number of messages and rollouts refused for a fault; a group without advantage is not a fault."""
        return sum(self.refused.values()) - self.without_advantage

    def add(self, event: Event) -> None:
        """Add one event; unknown event names are ignored."""
        match event["event"]:
            case "node_started":
                self._started(event)
            case "stopped" | "node_stopped":
                self.stopped = True
            case "step":
                self._stepped(event)
            case "published":
                self.published.add(_text(event, "content_id"))
            case "admitted":
                self.admitted[_text(event, "content_id")] = _account(event.get("account"))
            case "verified":
                self.verified.add(_text(event, "content_id"))
            case "refused":
                self._refused(event)
            case "refusals_counted":
                self._counted(event)
            case "tally":
                self.tallies[_int(event, "epoch")] = _points(event.get("points"))
            case "tallies":
                self.judged[_int(event, "epoch")] = _judged(event)
            case "epoch_final":
                self.posted.add(_int(event, "epoch"))
            case "learner_restarted":
                self.learner_restarts += 1
            case "ledger_error":
                self.ledger_errors.append(_text(event, "text"))
            case "service_failed":
                self.service_failures.append(f"{_text(event, 'service')}: {_text(event, 'error')}")

    @property
    def sampled(self) -> int:
        """Number of groups of others that entered this node's batches."""
        return sum(len(step.external) for step in self.steps)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Content ids that were trained on before this node had admitted and verified them."""
        return tuple(content_id for step in self.steps for content_id in step.unproven)

    @property
    def rewards(self) -> tuple[float, ...]:
        """Mean reward of the own completions, step by step."""
        return tuple(step.reward for step in self.steps)

    def lacking(self) -> tuple[str, ...]:
        """Return the families in which the node had next to no right answer in its first steps."""
        found: dict[str, list[float]] = {}
        for step in self.steps[:START_STEPS]:
            for name, reward in step.families.items():
                found.setdefault(name, []).append(reward)
        return tuple(sorted(name for name, each in found.items() if sum(each) / len(each) < LACKING))

    def _started(self, event: Event) -> None:
        self.account = _account(event.get("account"))
        self.peer_id = _text(event, "peer_id")
        addresses = event.get("addresses")
        self.addresses = tuple(map(str, addresses)) if isinstance(addresses, list) else ()
        self.starts += 1
        self.stopped = False

    def _stepped(self, event: Event) -> None:
        external = tuple(_external_ids(event.get("external")))
        local = event.get("local")
        unproven = (id_ for id_ in external if id_ not in self.admitted or id_ not in self.verified)
        self.steps.append(
            RecordedStep(
                step=_int(event, "step"),
                epoch=_int(event, "epoch"),
                time=_text(event, "time"),
                reward=_float(event, "reward"),
                local=len(local) if isinstance(local, list) else 0,
                external=external,
                unproven=tuple(unproven),
                families=_rewards(event.get("families")),
            )
        )
        self.peers, self.pool = _int(event, "peers"), _int(event, "pool")
        self.max_peers = max(self.max_peers, self.peers)

    def _refused(self, event: Event) -> None:
        reason, count = _text(event, "reason"), _int(event, "count", default=1)
        self.refused[reason] += count
        if reason == "flood":
            self.floods[_text(event, "forwarder")] += count
        elif message := event.get("message"):
            self.refused_messages[str(message)] = reason
        elif content_id := event.get("content_id"):
            self.refused_contents.setdefault(str(content_id), set()).add(reason)

    def _counted(self, event: Event) -> None:
        """Add refusals without an event of their own, of which neither message nor forwarder is known."""
        counts = Counter(counts_by_reason(event))
        self.refused.update(counts)
        self.floods.update({"": counts[Reason.FLOOD]} if counts[Reason.FLOOD] else {})


def read_record(name: str, events: Iterable[Event]) -> NodeRecord:
    """Return the record that a whole event file gives."""
    record = NodeRecord(name)
    for event in events:
        record.add(event)
    return record


LACKING: Final = 0.05
"""Mean reward at the start of a run below which a node lacks the skill of a family."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Mean reward at both ends of a run.

    Attributes:
        error: standard error of their difference, from how steps differ within each end.
    """

    start: float
    end: float
    error: float = 0.0

    @property
    def fell(self) -> bool:
        """Whether the end lies below the start by more than chance explains (two standard errors)."""
        return self.end < self.start - 2 * self.error

    @property
    def rose(self) -> bool:
        """Whether the end lies above the start by more than chance explains (two standard errors)."""
        return self.end > self.start + 2 * self.error


START_STEPS: Final = 10
"""Steps of the start, before a policy has learned much; with a few dozen answers per step, fewer would be too
noisy."""

END_SHARE: Final = 0.2
"""Part of the steps that forms the end: more steps than the start, for less noise, since little changes by
then."""


def trend(rewards: tuple[float, ...]) -> Trend | None:
    """Return the trend of a run: its first ten steps against its last fifth (at least ten steps).

    In a short run each end is one half; a run of one step has no trend.
    """
    half = len(rewards) // 2
    if half == 0:
        return None
    first = rewards[: min(START_STEPS, half)]
    last = rewards[-min(max(START_STEPS, int(END_SHARE * len(rewards))), half) :]
    squared_error = sum(variance(part) / len(part) for part in (first, last) if len(part) > 1)
    return Trend(fmean(first), fmean(last), math.sqrt(squared_error))


def _external_ids(value: JSON) -> Iterable[str]:
    groups = value if isinstance(value, list) else []
    return (str(group["content_id"]) for group in groups if isinstance(group, dict))


def _points(value: JSON) -> dict[str, int]:
    entries: Mapping[str, JSON] = value if isinstance(value, dict) else {}
    return {_account(account): count for account, count in entries.items() if isinstance(count, int)}


def _judged(event: Event) -> JudgedTallies:
    return JudgedTallies(
        counted=_accounts(event.get("counted")),
        late=_accounts(event.get("late")),
        apart=_points(event.get("apart")),
    )


def _accounts(value: JSON) -> frozenset[str]:
    return frozenset(map(_account, value if isinstance(value, list) else []))


def _rewards(value: JSON) -> Mapping[str, float]:
    entries: Mapping[str, JSON] = value if isinstance(value, dict) else {}
    return {name: float(reward) for name, reward in entries.items() if isinstance(reward, int | float)}


def _account(value: JSON) -> str:
    return str(value or "").removeprefix("0x").lower()


def _text(event: Event, key: str) -> str:
    return str(event.get(key) or "")


def _int(event: Event, key: str, default: int = 0) -> int:
    value = event.get(key)
    return value if isinstance(value, int) else default


def _float(event: Event, key: str) -> float:
    value = event.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
