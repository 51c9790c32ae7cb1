"""Change of a node's skills in a run, in families that it lacked at first and in the others; pure.

Nodes that start from different models learn missing skills from each other. Meanwhile they forget a part of
their own skills, and learn it again (docs/experiment-notes.md). The mean over all families mixes both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from sapo_client.testnet.node_record import NodeRecord, Trend, trend


@dataclass(frozen=True, slots=True)
class Skills:
    """Mean reward of one node's own answers at both ends of a run, families counted equally.

    Attributes:
        lacked: families in which it had almost no right answer in its first steps.
        learnt: trend in those families; None if there are none, or fewer than two steps with them.
        kept: trend in all other families; None likewise.
    """

    name: str
    lacked: tuple[str, ...]
    learnt: Trend | None
    kept: Trend | None


def skills_of(record: NodeRecord) -> Skills:
    """Return the changes of a node's skills."""
    lacked = record.lacking()
    known = {name for step in record.steps for name in step.families} - set(lacked)
    return Skills(record.name, lacked, _trend_in(record, lacked), _trend_in(record, known))


def travelled(skills: Sequence[Skills]) -> Trend | None:
    """Return the mean change in lacked families over the nodes that lacked any; None without such nodes."""
    learnt = [each.learnt for each in skills if each.learnt is not None]
    if not learnt:
        return None
    error = math.sqrt(sum(each.error**2 for each in learnt)) / len(learnt)
    return Trend(fmean(each.start for each in learnt), fmean(each.end for each in learnt), error)


def _trend_in(record: NodeRecord, families: Collection[str]) -> Trend | None:
    """Return the trend over those steps that have answers in any of the families."""
    found = [[step.families[name] for name in families if name in step.families] for step in record.steps]
    return trend(tuple(fmean(rewards) for rewards in found if rewards))
