"""The latest messages that were not admitted, by the peer that sent them: bounded, in memory only.

Each peer has room of its own, so that a loud one does not push out what the others sent. A message that was
refused may be anything, so only its digest is kept, never its bytes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sapo_client.dashboard.rollouts import StageResult
from sapo_protocol.rules import STAGES

MAX_FORWARDERS: Final = 64
"""As many as may be connected; the one that was refused longest ago makes room."""

MAX_OF_A_FORWARDER: Final = 16
MAX_DETAIL: Final = 300
"""Characters."""


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that broke a rule of stages 0 to 7.

    Attributes:
        forwarder: peer that sent it; honest peers forward nothing that they would refuse themselves.
        message: SHA-256 as hexadecimal digits; none where the transport read no whole message.
        rule: number of the broken rule.
        reason: that it stands for.
        count: of such messages at once.
    """

    forwarder: str
    at: float
    message: str | None
    rule: str
    stage: int
    reason: str
    detail: str
    count: int = 1

    def stages(self) -> tuple[StageResult, ...]:
        """Return the outcome of every stage, in order."""
        return tuple(
            StageResult(number, name, True)
            if number < self.stage
            else StageResult(number, name, False, self.detail or self.reason, self.rule)
            if number == self.stage
            else StageResult(number, name, None, "not reached")
            for number, name in enumerate(STAGES)
        )


@dataclass(slots=True)
class _Forwarder:
    counts: Counter[str] = field(default_factory=Counter)
    latest: deque[RefusedMessage] = field(default_factory=lambda: deque(maxlen=MAX_OF_A_FORWARDER))


class RefusedMessages:
    """The latest refused messages of the latest forwarders, and how many of each there were by reason."""

    def __init__(self) -> None:
        self._forwarders: OrderedDict[str, _Forwarder] = OrderedDict()

    def note(self, fields: Mapping[str, object], at: float) -> None:
        """Take an event ``refused`` of a message; one about an admitted rollout is not for here.

        Args:
            fields: of the event.
            at: Unix seconds.
        """
        forwarder, rule, stage = fields.get("forwarder"), fields.get("rule"), fields.get("stage")
        if not (isinstance(forwarder, str) and isinstance(rule, str) and isinstance(stage, int)):
            return
        digest, count = fields.get("message"), fields.get("count", 1)
        refused = RefusedMessage(
            forwarder=forwarder,
            at=at,
            message=digest.hex() if isinstance(digest, bytes) else None,
            rule=rule,
            stage=stage,
            reason=str(fields.get("reason")),
            detail=str(fields.get("detail") or "")[:MAX_DETAIL],
            count=count if isinstance(count, int) else 1,
        )
        known = self._forwarders.setdefault(forwarder, _Forwarder())
        self._forwarders.move_to_end(forwarder)
        known.counts[refused.reason] += refused.count
        known.latest.append(refused)
        if len(self._forwarders) > MAX_FORWARDERS:
            self._forwarders.popitem(last=False)

    def by_forwarder(self) -> dict[str, dict[str, int]]:
        """Return how many messages of each forwarder were refused, by reason; the latest forwarder first."""
        return {name: dict(known.counts) for name, known in reversed(self._forwarders.items())}

    def newest(self) -> Iterator[RefusedMessage]:
        """Yield the kept messages, newest first."""
        kept = (refused for known in self._forwarders.values() for refused in known.latest)
        yield from sorted(kept, key=lambda refused: -refused.at)
