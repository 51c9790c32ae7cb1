"""Digests of the items and scores of ReasoningGYM's families, every family at every level.

``PYTHONHASHSEED=0 python tests/support/item_digests.py`` prints them as JSON. What it printed while
reasoning-gym 0.1.25 was installed from the package index, with all that it requires, is in
`tests/verification/tasks/data/item_digests.json`. The release's ``time_intervals`` reads the day from the
clock: its digests were recorded on 2026-11-23, equal those of `bundled.TODAY` set to that day, and were then
replaced by those of the fixed day.
"""

import json
from hashlib import sha256
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import NAMES, family, levels
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import Item, Underivable, derive, solution
from sapo_verification.tasks.own_generators import OWN_GENERATORS
from sapo_verification.tasks.scorers import score

SEEDS: Final = tuple(place * 0x3C6EF372 % 2**31 for place in range(50))
SOLVED_SEEDS: Final = SEEDS[:10]
"""A solution can take a search of seconds."""

ANSWERS: Final = ("", "0", "1", "1/2", "[[0]]", "red", "A → B", "P ∧ Q", "(1 + 1)", "\ud800")


def item_digests() -> dict[str, str]:
    """Return the SHA-256 over the items and scores of each family, by ``name/level``."""
    names = [name for name in NAMES if name not in OWN_GENERATORS]
    families = [family(name, level) for name in names for level in levels(name)]
    return {f"{each.name}/{each.level}": family_digest(each) for each in families}


def family_digest(each: Family) -> str:
    """Return the SHA-256 over prompts, entries, solutions, and scores of right and wrong answers."""
    facts: list[object] = []
    for seed in SEEDS:
        try:
            item = derive(each, seed)
        except Underivable as error:
            facts.append(str(error))
            continue
        answers = [*ANSWERS]
        if seed in SOLVED_SEEDS:
            solved = solution(each, item) or ""
            answers += [solved, solved[:-1], f"{solved}0"]
        rewards = [reward(each, answer, item) for answer in answers]
        facts.append([seed, item.prompt, repr(item.entry), answers, rewards])
    return sha256(json.dumps(facts).encode("ascii")).hexdigest()


def reward(each: Family, answer: str, item: Item) -> float:
    """Return the score of an answer in a completion of its family's form."""
    text = f"<answer>{answer}</answer>" if each.answer == "tag" else answer
    return score(each, extract(each, text.encode("utf-8", "surrogatepass")), item.entry)


if __name__ == "__main__":
    print(json.dumps(item_digests(), indent=0))
