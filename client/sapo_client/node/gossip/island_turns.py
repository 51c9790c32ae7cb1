"""Selection of the islands of the next request, for a node that carries more than fit into one. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sapo_protocol.islands.address_record import MAX_ASKED_ISLANDS


class IslandTurns:
    """The order in which the islands are asked for.

    Half of a request is for the islands with fewest known members. The other half is for those that were
    asked for longest ago, since otherwise islands without any members would take all requests.
    """

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._questions = 0

    def next(self, carried: Collection[int], members: Mapping[int, int]) -> tuple[int, ...]:
        """Return the islands of the next request, at most eight, sorted.

        Args:
            members: number of known members of each island.
        """
        self._asked = {island: when for island, when in self._asked.items() if island in carried}
        self._questions += 1
        in_turn = sorted(carried, key=lambda island: (self._asked.get(island, 0), island))
        fewest = sorted(in_turn, key=lambda island: members.get(island, 0))[: MAX_ASKED_ISLANDS // 2]
        others = [island for island in in_turn if island not in fewest]
        chosen = fewest + others[: MAX_ASKED_ISLANDS - len(fewest)]
        self._asked.update(dict.fromkeys(chosen, self._questions))
        return tuple(sorted(chosen))
