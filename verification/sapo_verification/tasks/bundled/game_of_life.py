"""The three functions of cellpylib that ReasoningGYM's game of life calls.

cellpylib 2.4.0 requires and imports matplotlib, which is a hundred megabytes with all that it requires.
"""

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Grid = NDArray[np.int32]
Rule = Callable[[Grid], Grid]


def init_simple2d(rows: int, columns: int) -> Grid:
    """Return a history of shape ``(1, rows, columns)``: every cell is 0 but the one in the middle."""
    history = np.zeros((1, rows, columns), dtype=np.int32)
    history[0, rows // 2, columns // 2] = 1
    return history


def game_of_life_rule(neighbourhoods: Grid) -> Grid:
    """Return the next states of cells.

    Args:
        neighbourhoods: of shape ``(..., 3, 3)``, each with its cell in the middle.
    """
    alive = neighbourhoods[..., 1, 1] == 1
    total = neighbourhoods.sum(axis=(-2, -1))
    lives: NDArray[np.bool_] = (total == 3) | (alive & (total == 4))
    return lives.astype(np.int32)


def evolve2d(history: Grid, *, timesteps: int, apply_rule: Rule, memoize: str) -> Grid:
    """Return ``timesteps`` states, the first of them the last of ``history``, on a grid with joined edges.

    Args:
        history: of shape ``(states, rows, columns)``.
        apply_rule: is given the neighbourhoods of all cells, of shape ``(rows, columns, 3, 3)``.
        memoize: how cellpylib is to save time; it changes no result.
    """
    states = [history[-1]]
    while len(states) < timesteps:
        joined = np.pad(states[-1], 1, mode="wrap")
        states.append(apply_rule(sliding_window_view(joined, (3, 3))))
    return np.array(states)
