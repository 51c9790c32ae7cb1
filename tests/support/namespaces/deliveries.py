"""Deliveries and their delays from the nodes' own event files; pure except for reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import permutations
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from sapo_client.observe.events import read_events
from sapo_client.observe.refusal_events import counts_by_reason

_NO_FAULTS: Final = frozenset({"no_signal", "seen"})
"""A group without advantage, and a second copy that a peer sent on request."""


@dataclass(frozen=True, slots=True)
class Record:
    """Contents of one node's event file.

    Attributes:
        published: Unix time of each own group by content id.
        admitted: Unix time at which each group of others was admitted.
        epochs: in which it published.
        refused: messages and groups refused, by reason; those alone that are faults.
    """

    published: Mapping[str, float]
    admitted: Mapping[str, float]
    epochs: frozenset[int]
    refused: Counter[str]


@dataclass(frozen=True, slots=True)
class Window:
    """A period of the run in which the counted groups were published.

    Attributes:
        name: of the period.
        begin: Unix time.
        end: Unix time.
        numbers: of the nodes that took part.
    """

    name: str
    begin: float
    end: float
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the groups of a window arrived.

    Attributes:
        groups: published in it.
        due: deliveries, each group to each other node once.
        came: of these, all that arrived until the files were read.
        pairs: ordered pairs of author and receiver.
        complete_pairs: of these, those whose second received every group of the first.
        deaf: pairs whose second received none of several groups.
        p50_seconds: median time from publishing to admission; None where nothing came.
        p99_seconds: the time that 99 % of what came kept.
    """

    name: str
    groups: int
    due: int
    came: int
    pairs: int
    complete_pairs: int
    deaf: int
    p50_seconds: float | None
    p99_seconds: float | None
    max_seconds: float | None = None
    missing: Mapping[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of the deliveries that arrived."""
        return self.came / self.due if self.due else 0.0


def read_record(path: Path) -> Record:
    """Return what a node's event file says."""
    published: dict[str, float] = {}
    admitted: dict[str, float] = {}
    epochs: set[int] = set()
    refused: Counter[str] = Counter()
    for event in read_events(path):
        seconds = datetime.fromisoformat(str(event["time"])).timestamp()
        match event:
            case {"event": "published", "content_id": str(content), "epoch": int(epoch)}:
                published[content] = seconds
                epochs.add(epoch)
            case {"event": "admitted", "content_id": str(content)}:
                admitted.setdefault(content, seconds)
            case {"event": "refused", "reason": str(reason)} if reason not in _NO_FAULTS:
                refused[reason] += 1
            case {"event": "refusals_counted"}:
                counts = counts_by_reason(event)
                refused.update({reason: counts[reason] for reason in counts.keys() - _NO_FAULTS})
    return Record(published, admitted, frozenset(epochs), refused)


def delivery(window: Window, records: Mapping[int, Record]) -> Delivery:
    """Return how the groups that were published in a window arrived at the others that took part in it."""
    groups = {
        number: {
            content: seconds
            for content, seconds in records[number].published.items()
            if window.begin <= seconds < window.end
        }
        for number in window.numbers
    }
    seconds: list[float] = []
    complete = deaf = due = 0
    missing: Counter[str] = Counter()
    for author, hearer in permutations(window.numbers, 2):
        heard = records[hearer].admitted
        came = [heard[content] - sent for content, sent in groups[author].items() if content in heard]
        due += len(groups[author])
        complete += len(came) == len(groups[author])
        deaf += bool(groups[author]) and not came
        if lost := len(groups[author]) - len(came):
            missing[f"{author:02d} to {hearer:02d}"] = lost
        seconds += came
    p50, p99, most = _spread(seconds)
    pairs = len(window.numbers) * (len(window.numbers) - 1)
    count = sum(map(len, groups.values()))
    return Delivery(
        window.name, count, due, len(seconds), pairs, complete, deaf, p50, p99, most, dict(missing)
    )


def first_heard(
    begin: float, numbers: Sequence[int], records: Mapping[int, Record]
) -> dict[tuple[int, int], float | None]:
    """Return after how many seconds each node first heard a group that each other published since a time.

    None for pairs that have not heard each other since.
    """
    found: dict[tuple[int, int], float | None] = {}
    for author, hearer in permutations(numbers, 2):
        heard = records[hearer].admitted
        since = [content for content, sent in records[author].published.items() if sent >= begin]
        found[author, hearer] = min((heard[each] - begin for each in since if each in heard), default=None)
    return found


def _spread(seconds: Iterable[float]) -> tuple[float | None, float | None, float | None]:
    values = sorted(seconds)
    if len(values) < 2:
        return None, None, None
    return median(values), quantiles(values, n=100, method="inclusive")[-1], values[-1]
