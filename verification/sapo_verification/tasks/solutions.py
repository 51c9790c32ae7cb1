"""Honest answers to items: the generator's own, or one computed where it publishes none."""

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from sapo_verification.tasks.entries import Entry
from sapo_verification.tasks.score_logic import in_symbols, strongest
from sapo_verification.tasks.score_puzzles import cars_of, drive, is_out
from sapo_verification.tasks.score_text import NO_ROOTS


def honest_answer(name: str, entry: Entry) -> str | None:
    """Return an answer to a family's item in the notation of the full prompt; None where there is none."""
    find = _FOUND.get(name)
    return str(entry["answer"]).strip() or None if find is None else find(entry)


def _conclusion(entry: Entry) -> str | None:
    data = entry["metadata"]
    found = strongest(data["premises"], frozenset(data["variables"]))
    return found if found is None else in_symbols(found)


def _coloring(entry: Entry) -> str | None:
    colors = entry["metadata"]["possible_answer"]
    return json.dumps({str(vertex): color for vertex, color in colors.items()})


def _rotations(entry: Entry) -> str | None:
    """Return the published solution with every half turn written as two quarter turns."""
    moves = str(entry["metadata"]["example_correct_answer"]).split()
    return " ".join(f"{move[:-1]} {move[:-1]}" if move.endswith("2") else move for move in moves) or None


def _roots(entry: Entry) -> str | None:
    return str(entry["answer"]) or NO_ROOTS


def _drive_out(entry: Entry) -> str | None:
    """Return a shortest solution by breadth-first search, which takes seconds for the hardest boards."""
    start = cars_of(entry["metadata"]["board_config"])
    queue, seen = deque([(start, "")]), {tuple(sorted(start.items()))}
    while queue:
        cars, moves = queue.popleft()
        if is_out(cars):
            return moves.strip()
        for car in sorted(cars.keys() - {"x"}):
            for steps in (-4, -3, -2, -1, 1, 2, 3, 4):
                moved = drive(cars, car, steps)
                if moved is not None and (key := tuple(sorted(moved.items()))) not in seen:
                    seen.add(key)
                    queue.append((moved, f"{moves} {car}{steps:+d}"))
    return None


_FOUND: Final[Mapping[str, Callable[[Entry], str | None]]] = {
    "propositional_logic": _conclusion,
    "graph_color": _coloring,
    "rubiks_cube": _rotations,
    "polynomial_equations": _roots,
    "rush_hour": _drive_out,
}
