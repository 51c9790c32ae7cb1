"""The results of a run as Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.namespaces.deliveries import Delivery, Record

HEARD_SECONDS = 60.0
"""Within which every node is to hear every other after a partition."""


@dataclass(frozen=True, slots=True)
class Result:
    """Results of a run.

    Attributes:
        ended: why it ended too soon; None if it did not.
        deliveries: by window, in order.
        healed: by ordered pair of author and hearer, seconds from the partition's end to the first group
            heard of those published since; None if none was.
        lowest: by window, the lowest score that a node had for another at its end.
        reachable: number of nodes by the reachability that they determined.
        silent_epochs: pairs of node and epoch, between its first and its last, in which it published nothing.
        refused: messages and groups that nodes refused, by reason.
        relay: counts of the relay.
        cpu_share: processor time of all nodes, as a share of one core.
        node_bytes: largest resident memory of a node with its children.
    """

    ended: str | None
    deliveries: tuple[Delivery, ...]
    healed: Mapping[tuple[int, int], float | None]
    lowest: Mapping[str, float]
    reachable: Mapping[str, int]
    silent_epochs: int
    refused: Mapping[str, int]
    relay: Mapping[str, float]
    cpu_share: float
    node_bytes: int

    @property
    def heard_again(self) -> int:
        """Pairs that received groups of each other within a minute of the partition's end."""
        return sum(seconds is not None and seconds <= HEARD_SECONDS for seconds in self.healed.values())

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain data for a file."""
        plain = asdict(self)
        plain["reachable"], plain["refused"] = dict(self.reachable), dict(self.refused)  # a Counter is spoilt
        plain["healed"] = {f"{author} to {hearer}": s for (author, hearer), s in self.healed.items()}
        return plain


def silent_epochs(records: Mapping[int, Record], except_for: Sequence[int]) -> int:
    """Return the number of whole epochs without a group of a node, summed over nodes."""
    return sum(
        len(set(range(min(record.epochs), max(record.epochs))) - record.epochs)
        for number, record in records.items()
        if record.epochs and number not in except_for
    )


def refusals(records: Mapping[int, Record]) -> dict[str, int]:
    """Return what was refused by all nodes, by reason."""
    return dict(sum((record.refused for record in records.values()), Counter()))


def write(folder: Path, text: str, plain: Mapping[str, Any]) -> str:
    """Write results as Markdown and as JSON; return the Markdown."""
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return text


def rows(deliveries: Sequence[Delivery], lowest: Mapping[str, float]) -> list[str]:
    """Return the lines of a table of deliveries.

    Args:
        lowest: by name of the window, the lowest score that a node had for another at its end.
    """
    return [
        "| groups published | deliveries | came | pairs without a loss | deaf pairs | 50 %, 99 %, all within"
        " | lowest score |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(each, lowest.get(each.name)) for each in deliveries),
    ]


def markdown(result: Result) -> str:
    """Return the table of windows and the remaining figures."""
    worst = max((seconds for seconds in result.healed.values() if seconds is not None), default=None)
    never = sum(seconds is None for seconds in result.healed.values())
    facts = [
        *([] if result.ended is None else [f"* The run ended too soon: {result.ended}"]),
        f"* After the partition {result.heard_again} of {len(result.healed)} pairs heard each other within"
        f" {HEARD_SECONDS:.0f} s, the last after {_seconds(worst)}, {never} never.",
        f"* Nodes say of themselves: {counted(result.reachable)}.",
        f"* Epochs in which a node published nothing: {result.silent_epochs}.",
        f"* Refused, all nodes together: {counted(result.refused)}.",
        f"* The relay: {counted({name: round(count, 1) for name, count in result.relay.items()})}.",
        f"* All nodes together took {result.cpu_share:.2f} of a core;"
        f" the largest had {result.node_bytes / 2**20:.0f} MiB.",
    ]
    return "\n".join([*rows(result.deliveries, result.lowest), "", *facts]) + "\n"


def _row(each: Delivery, lowest: float | None) -> str:
    within = ", ".join(map(_seconds, (each.p50_seconds, each.p99_seconds, each.max_seconds)))
    score = "" if lowest is None else f"{lowest:.1f}"
    return (
        f"| {each.name}: {each.groups} | {each.due:,} | {each.share:.3%} |"
        f" {each.complete_pairs} of {each.pairs} | {each.deaf} | {within} | {score} |"
    )


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def counted(counts: Mapping[str, float]) -> str:
    """Return counts with their names as one text."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"
