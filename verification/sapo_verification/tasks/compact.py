"""Renderer ``compact/1``: the data of a question without its prose.

A policy of a million parameters reads a few dozen characters. These rules keep what the answer depends on.
Changing one changes the items of every swarm at that level, so a change gets a new renderer id.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Final

from sapo_verification.tasks.entries import Entry

_ASCII_LOGIC: Final = str.maketrans({"∧": "&", "∨": "|", "¬": "~", "→": ">", "↔": "=", " ": None})
_WEEKDAY: Final = re.compile("(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day")


def compact_solution(name: str, answer: str) -> str:
    """Return a generator's answer in the notation that the compact prompt is in."""
    if name == "arc_1d":
        return answer.replace(" ", "")
    if name == "binary_matrix":
        return answer.replace(" ", "").replace("\n", "/")
    return answer.translate(_ASCII_LOGIC) if name == "propositional_logic" else answer


def _base_conversion(entry: Entry) -> str:
    """Return for example ``1540 base 8 to 14``."""
    data = entry["metadata"]
    return f"{data['source_repr']} base {data['source_base']} to {data['target_base']}"


def _basic_arithmetic(entry: Entry) -> str:
    """Return for example ``7 - 4 =``."""
    return f"{entry['metadata']['expression']} ="


def _arc_1d(entry: Entry) -> str:
    """Return the examples, then the test input: ``00110000>00011000 ... 01100000>``."""
    data = entry["metadata"]
    pairs = [f"{_cells(pair['input'])}>{_cells(pair['output'])}" for pair in data["train_examples"]]
    return " ".join([*pairs, f"{_cells(data['test_example']['input'])}>"])


def _bf(entry: Entry) -> str:
    """Return the program without its opening, which clears empty cells, runs counted: ``10+[<10+>-]<2+.``."""
    program = entry["metadata"]["bf_program"].removeprefix(">[-]>[-]<")
    runs = ((symbol, len(list(run))) for symbol, run in groupby(program))
    return "".join(symbol if count == 1 else f"{count}{symbol}" for symbol, count in runs)


def _propositional_logic(entry: Entry) -> str:
    """Return the premises with ASCII operators: ``P>Q; ~Q; ?``."""
    return "; ".join([*(_logic_text(premise) for premise in entry["metadata"]["premises"]), "?"])


def _fraction_simplification(entry: Entry) -> str:
    """Return for example ``12/32``."""
    data = entry["metadata"]
    return f"{data['numerator']}/{data['denominator']}"


def _decimal_arithmetic(entry: Entry) -> str:
    """Return the question's last line: ``(9.3-2.5) =``."""
    return str(entry["question"]).rpartition("\n")[2].removesuffix(" ?")


def _calendar_arithmetic(entry: Entry) -> str:
    """Return for example ``Friday -6`` where the task is a weekday offset, else the question."""
    data = entry["metadata"]
    start = _WEEKDAY.search(entry["question"])
    if data["task"] != "weekday_offset" or start is None:
        return str(entry["question"])
    return f"{start[0]} {data['offset_days']:+d}"


def _binary_matrix(entry: Entry) -> str:
    """Return the rows: ``111/101/111``."""
    return "/".join(_cells(row) for row in entry["metadata"]["matrix"])


def _cells(row: Sequence[int]) -> str:
    return "".join(str(cell) for cell in row)


def _logic_text(text: str) -> str:
    plain = text.translate(_ASCII_LOGIC)
    return plain[1:-1] if plain.startswith("(") and _closes_last(plain) else plain


def _closes_last(text: str) -> bool:
    """Whether the first parenthesis closes with the last character."""
    depths = list(accumulate((character == "(") - (character == ")") for character in text))
    return depths[-1] == 0 and 0 not in depths[:-1]


COMPACT: Final[Mapping[str, Callable[[Entry], str]]] = {
    "base_conversion": _base_conversion,
    "basic_arithmetic": _basic_arithmetic,
    "arc_1d": _arc_1d,
    "bf": _bf,
    "propositional_logic": _propositional_logic,
    "fraction_simplification": _fraction_simplification,
    "decimal_arithmetic": _decimal_arithmetic,
    "calendar_arithmetic": _calendar_arithmetic,
    "binary_matrix": _binary_matrix,
}
