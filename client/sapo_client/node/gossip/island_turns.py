"""Of which islands a node asks its peers next, where it carries more than fit into a question. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sapo_protocol.islands.address_record import MAX_ASKED_ISLANDS


class IslandTurns:
    """Remembers when each island was asked for.

    Half of a question is for the islands with fewest members, so that those without any are filled first.
    The other half is for those that were asked for longest ago: islands on which nobody lives would
    otherwise keep all others from being asked for.
    """

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._questions = 0

    def next(self, carried: Collection[int], members: Mapping[int, int]) -> tuple[int, ...]:
        """Return the islands of the next question, at most eight, sorted.

        Args:
            members: how many members of each island are at hand.
        """
        self._asked = {island: when for island, when in self._asked.items() if island in carried}
        self._questions += 1
        in_turn = sorted(carried, key=lambda island: (self._asked.get(island, 0), island))
        fewest = sorted(in_turn, key=lambda island: members.get(island, 0))[: MAX_ASKED_ISLANDS // 2]
        others = [island for island in in_turn if island not in fewest]
        chosen = fewest + others[: MAX_ASKED_ISLANDS - len(fewest)]
        self._asked.update(dict.fromkeys(chosen, self._questions))
        return tuple(sorted(chosen))
