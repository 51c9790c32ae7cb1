"""Items of families: missing items of a generator, and items of our own generators."""

import json
import random
from dataclasses import replace
from typing import Any, cast

import pytest

from sapo_protocol.suite import Family, canonical_json
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.generators import Item, Underivable, derive, solution
from sapo_verification.tasks.own_generators import OWN_GENERATORS


def with_settings(chosen: Family, **settings: Any) -> Family:
    return replace(
        chosen,
        config=canonical_json({**json.loads(chosen.config), **settings}),
    )


def test_a_seed_at_which_the_generator_fails_has_no_item() -> None:
    with pytest.raises(Underivable, match="base_conversion has no item at seed 3"):
        derive(with_settings(family("base_conversion", "nano"), max_base=1), 3)


def test_a_family_with_an_unknown_renderer_has_no_items() -> None:
    with pytest.raises(Underivable, match="no renderer 'prose/9'"):
        derive(with_settings(family("base_conversion", "nano"), render="prose/9"), 3)


def test_a_compact_calendar_question_is_shortened_only_where_it_is_an_offset() -> None:
    nano = family("calendar_arithmetic", "nano")
    offset, other = nano, with_settings(nano, tasks=["is_leap_year"])
    assert derive(offset, 1).prompt.split()[0].endswith("day")
    item = derive(other, 1)
    assert item.prompt == nano.prompt.replace("{question}", item.entry["question"])


def test_a_board_without_a_path_has_no_solution() -> None:
    rows = ("oooooo", "oooxoo", "AAoxoo", "oooxoo", "oooooo", "oooooo")
    item = Item("", {"metadata": {"board_config": "".join(rows)}})
    assert solution(family("rush_hour", "full"), item) is None


def test_an_own_generator_gets_a_random_source_of_the_seed_and_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sums(rng: random.Random, settings: dict[str, Any]) -> dict[str, Any]:
        left, right = (rng.randint(0, settings["most"]) for _ in range(2))
        return {"question": f"{left} + {right}", "answer": str(left + right), "metadata": {}}

    monkeypatch.setitem(cast("dict[str, Any]", OWN_GENERATORS), "own_sums", sums)
    config = canonical_json({"most": 99, "render": "question/1"})
    own = replace(family("base_conversion", "nano"), name="own_sums", config=config)
    rng = random.Random(7)
    left, right = rng.randint(0, 99), rng.randint(0, 99)
    item = derive(own, 7)
    question = f"{left} + {right}"
    entry = {"question": question, "answer": str(left + right), "metadata": {}}
    assert item == Item(own.prompt.replace("{question}", question), entry)
    assert solution(own, item) == str(left + right)
