"""ReasoningGYM's own scorers, for families whose scorer is safe but pays for more than full solutions.

An answer must first match its family's pattern as a whole, so that nothing else reaches the stock code:
no nested brackets, no long numbers, no text around the solution. A stock score of 0.99 or more earns 1.0,
any other 0. The scorer belongs to a data set with the config that made the item.
"""

import copy
import re
from collections.abc import Mapping
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.datasets import dataset
from sapo_verification.tasks.entries import Entry, Scorer

FULL_MARKS: Final = 0.99
"""spell_backward adds fractions up to 0.9999999999999999."""

_COORDINATE: Final = r"-?[0-9]{1,6}(?:\.[0-9]{1,6})?"
_DIRECTIONS: Final = "(?:up|down|left|right)"
_WORD: Final = '"[a-z]{1,32}"'
_WORD_LIST: Final = rf"\[{_WORD}(?:, ?{_WORD}){{0,31}}\]"
_JUG_MOVE: Final = '"(?:(?:fill|empty) [A-C]|pour [A-C]->[A-C])"'
_COLOR: Final = '"[0-9]{1,2}": ?[1-9]'

SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(shape, re.ASCII)
    for name, shape in {
        "advanced_geometry": rf"{_COORDINATE}°?|\({_COORDINATE}, ?{_COORDINATE}\)",
        "graph_color": rf"\{{{_COLOR}(?:, ?{_COLOR}){{0,31}}\}}",
        "group_anagrams": rf"\[{_WORD_LIST}(?:, ?{_WORD_LIST}){{0,31}}\]",
        "jugs": rf"\[{_JUG_MOVE}(?:, ?{_JUG_MOVE}){{0,63}}\]",
        "palindrome_partitioning": rf"\[{_WORD_LIST}(?:, ?{_WORD_LIST}){{0,63}}\]",
        "pool_matrix": r"[0-9]{1,2}(?:\.[0-9]{1,6})?(?:[ \n][0-9]{1,2}(?:\.[0-9]{1,6})?){0,99}",
        "quantum_lock": "[A-C](?: ?(?:→|->) ?[A-C]){0,31}",
        "rubiks_cube": "[UDFBLR]'?(?: [UDFBLR]'?){0,299}",
        "shortest_path": rf"{_DIRECTIONS}(?: {_DIRECTIONS}){{0,63}}|infeasible",
        "tower_of_hanoi": r"Move disk [1-9] from Peg [1-9] to Peg [1-9]"
        r"(?:\nMove disk [1-9] from Peg [1-9] to Peg [1-9]){0,63}",
        "word_ladder": "[A-Z]{2,8}(?:, ?[A-Z]{2,8}){1,31}",
    }.items()
}


def _stock(answer: str, entry: Entry, family: Family) -> bool:
    if not SHAPES[family.name].fullmatch(answer):
        return False
    scratch = copy.deepcopy(dict(entry))  # some stock scorers write into the entry
    return bool(dataset(family).score_answer(answer, scratch) >= FULL_MARKS)


SCORERS: Final[dict[str, Scorer]] = {"stock/1": _stock}
