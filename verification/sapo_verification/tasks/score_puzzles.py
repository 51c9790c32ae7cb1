"""Scorers of puzzles with many solutions: the answer is carried out, and every move must be legal.

The stock scorers of movement puzzles skip illegal moves, so a long random walk solves the easy ones.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.entries import Entry, Scorer
from sapo_verification.tasks.score_text import lower, words

_DIGIT_OF_LETTER: Final = re.compile(r"[A-Z]=[0-9](?:, ?[A-Z]=[0-9]){0,25}")
_CAR_MOVES: Final = re.compile(r"[A-Z][+-][1-5](?: [A-Z][+-][1-5]){0,199}")
_STEPS: Final = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
_SIDE: Final = 6
"""Side length of a rush hour board."""
_EXIT: Final = 16
"""The cell of the third row that holds the red car's left end when the car is at the exit."""


def _numbers(text: str) -> list[list[int]]:
    """Return the rows of a grid of small numbers."""
    rows = words(text)
    if not all(re.fullmatch("0|[1-9][0-9]{0,3}", word) for row in rows for word in row):
        raise ValueError("not a grid of numbers")
    return [[int(word) for word in row] for row in rows]


def _has_shape(grid: Sequence[Sequence[int]], rows: int, columns: int) -> bool:
    return len(grid) == rows and all(len(row) == columns for row in grid)


def _sums(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the positions of the ones add up to each row's and each column's sum (kakurasu)."""
    data, grid = entry["metadata"], _numbers(answer)
    if not _has_shape(grid, data["n_rows"], data["n_cols"]) or not set().union(*grid) <= {0, 1}:
        return False
    columns = list(zip(*grid, strict=True))
    return bool(_weights(grid) == data["row_sums"] and _weights(columns) == data["col_sums"])


def _weights(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(place * cell for place, cell in enumerate(row, 1)) for row in rows]


def _survo(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the given numbers fill the open cells, each once, so that the margins are sums."""
    data, grid = entry["metadata"], _numbers(answer)
    puzzle, size = data["puzzle"], data["board_size"]
    if not _has_shape(grid, size, size):
        return False
    cells = [
        (asked, got)
        for given, row in zip(puzzle, grid, strict=True)
        for asked, got in zip(given, row, strict=True)
    ]
    filled = sorted(got for asked, got in cells if asked == 0)
    if filled != sorted(data["candidate_numbers"]) or any(asked not in (0, got) for asked, got in cells):
        return False
    lines = [*grid, *zip(*grid, strict=True)]
    return all(sum(line[:-1]) == line[-1] for line in lines)


def _queens(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is one of the boards that complete the given one."""
    return any(words(answer) == words(board) for board in entry["metadata"]["valid_answers"])


def _palindrome(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is a palindrome of exactly the given letters."""
    text = lower(answer)
    return text == text[::-1] and sorted(text) == sorted(entry["metadata"]["letters"])


def _cryptarithm(answer: str, entry: Entry, family: Family) -> bool:
    """Whether every letter has its own digit, no number starts with zero, and the sum is right."""
    if not _DIGIT_OF_LETTER.fullmatch(answer):
        return False
    data, pairs = entry["metadata"], re.findall("([A-Z])=([0-9])", answer)
    digits = dict(pairs)
    texts = [*data["words_letters"], data["result_letters"]]
    if len(pairs) != len(digits) or digits.keys() != set("".join(texts)):
        return False
    numbers = ["".join(digits[letter] for letter in text) for text in texts]
    if len(set(digits.values())) != len(digits) or any(number[0] == "0" for number in numbers):
        return False
    return sum(map(int, numbers[:-1])) == int(numbers[-1])


def _sokoban(answer: str, entry: Entry, family: Family) -> bool:
    """Whether every step moves the player, and every box ends on a goal."""
    rows = [row for row in entry["metadata"]["gamestr"].replace(" ", "").split("\n") if row]
    board = {(y, x): mark for y, row in enumerate(rows) for x, mark in enumerate(row)}
    walls = {place for place, mark in board.items() if mark == "+"}
    boxes = {place for place, mark in board.items() if mark in "@$"}
    goals = {place for place, mark in board.items() if mark in "X$%"}
    (player,) = (place for place, mark in board.items() if mark in "*%")
    for step in answer:
        y, x = _STEPS[step]
        player, beyond = (player[0] + y, player[1] + x), (player[0] + 2 * y, player[1] + 2 * x)
        if player in walls or (player in boxes and beyond in walls | boxes):
            return False
        if player in boxes:
            boxes = boxes - {player} | {beyond}
    return boxes <= goals


def _rush_hour(answer: str, entry: Entry, family: Family) -> bool:
    """Whether every move can be made in full, and the red car reaches the exit."""
    if not _CAR_MOVES.fullmatch(answer):
        return False
    cars = cars_of(entry["metadata"]["board_config"])
    for move in answer.split(" "):
        moved = drive(cars, move[0], int(move[1:]))
        if moved is None:
            return False
        cars = moved
    return is_out(cars)


def is_out(cars: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the red car is at the exit."""
    return cars["A"][0] == _EXIT


def cars_of(board: str) -> dict[str, tuple[int, ...]]:
    """Return the cells of each car; walls (``x``) are one car that never moves."""
    return {mark: tuple(at for at, other in enumerate(board) if other == mark) for mark in set(board) - {"o"}}


def drive(cars: Mapping[str, tuple[int, ...]], car: str, steps: int) -> dict[str, tuple[int, ...]] | None:
    """Return the cars after one, which is no wall, has moved; None where it cannot."""
    cells, sign = cars[car], 1 if steps > 0 else -1
    stride = cells[1] - cells[0]
    taken = {cell for other, others in cars.items() if other != car for cell in others}
    for _ in range(abs(steps)):
        moved = tuple(cell + sign * stride for cell in cells)
        if taken.intersection(moved) or not all(0 <= cell < _SIDE * _SIDE for cell in moved):
            return None
        if stride == 1 and len({cell // _SIDE for cell in moved}) > 1:
            return None
        cells = moved
    return {**cars, car: cells}


SCORERS: Final[dict[str, Scorer]] = {
    "kakurasu/1": _sums,
    "survo/1": _survo,
    "queens/1": _queens,
    "palindrome/1": _palindrome,
    "cryptarithm/1": _cryptarithm,
    "sokoban/1": _sokoban,
    "rush-hour/1": _rush_hour,
}
