"""Pay of one account in this tree, in a swarm whose levels follow its success."""

from __future__ import annotations

from collections.abc import Sequence

from findings.tree import AUDITORS, SLOTS, groups

from sapo_protocol.identifiers import ContentId
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task
from sapo_protocol.terms.difficulty import Difficulty
from sapo_verification.epoch_count import EpochCount
from sapo_verification.types import AdmittedRollout, VerifiedRollout


def pay(chances: Sequence[float]) -> list[int]:
    """Return the points of one account per epoch, in a swarm of three levels that it is alone in.

    A level is harder than the one before it as the odds of a right answer say: a ninth of them.
    """
    author, difficulty = AUDITORS[0], Difficulty(ladders=((0, 1, 2),), groups=SLOTS)
    count, record = EpochCount(difficulty=difficulty), difficulty.start(3)
    points = []
    for epoch, chance in enumerate(chances):
        lots = (int(2**32 * (slot + 0.5) / SLOTS) for slot in range(SLOTS))
        levels = [difficulty.families_of(record, lot)[0] for lot in lots]
        for slot, rewards in enumerate(groups(epoch, [_chance(chance, level) for level in levels])):
            rollout = author.rollout(epoch=epoch, slot=slot, family=levels[slot])
            id_ = ContentId(bytes([epoch, slot]) + bytes(30))
            admitted = AdmittedRollout(id_, rollout)
            if len(set(rewards)) == 1:
                count.refused(Rule.SIGNAL, admitted, "all alike")
            count.verified(VerifiedRollout(admitted, Task(levels[slot], 0), "", rewards))
        points.append(dict(count.points_by_level(epoch, [author.account], SLOTS, record)))
        record = difficulty.follow(record, count.outcomes(epoch, [author.account], 3))
    return [earned.get(author.account, 0) for earned in points]


def _chance(easiest: float, level: int) -> float:
    odds = easiest / (1 - easiest) / 9**level
    return float(odds / (1 + odds))
