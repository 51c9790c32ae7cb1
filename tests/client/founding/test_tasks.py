"""The tasks of a new swarm: by name, or by the size of the model that it is for."""

from pathlib import Path

import pytest
from support.policies import make_policy_folder

from sapo_client.config import LearnerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.alone import alone_manifest
from sapo_client.founding.tasks import (
    EASY_DEFAULT,
    LEVELS,
    NANO_TASKS,
    TaskChoice,
    choose_tasks,
    default_families,
    difficulty_of,
    parameters_of,
)
from sapo_client.learner.sizing.presets import level_for
from sapo_client.learner.sizing.skeleton import make_skeleton
from sapo_client.node.runtime.backends import tokens_for
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Suite
from sapo_protocol.terms.difficulty import Difficulty
from sapo_verification.suites import catalogue


@pytest.mark.parametrize(
    ("parameters", "level"),
    [
        (1_000_000, "nano"),
        (49_999_999, "nano"),
        (50_000_000, "easy"),
        (135_000_000, "easy"),
        (300_000_000, "full"),
        (494_000_000, "full"),
        (70_000_000_000, "full"),
    ],
)
def test_the_level_follows_the_size_of_the_model(parameters: int, level: str) -> None:
    assert level_for(parameters) == level


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_families_that_the_catalogue_holds_at_it(level: str) -> None:
    names = default_families(level)
    assert len(names) == len(set(names)) > 5
    assert all(level in catalogue.levels(name) for name in names)


def test_a_packaged_model_gets_the_families_it_was_trained_on() -> None:
    assert choose_tasks(model="bundled") == TaskChoice("nano", catalogue.NANO_DEFAULT)
    assert NANO_TASKS.suite().families == tuple(
        catalogue.family(name, "nano") for name in catalogue.NANO_DEFAULT
    )


def test_a_folder_with_a_small_model_gets_nano(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    assert 10_000 < parameters_of(str(folder)) < 200_000
    assert choose_tasks(model=str(folder)).level == "nano"


def test_named_families_and_levels_override_the_model() -> None:
    assert choose_tasks(level="full") == TaskChoice("full", catalogue.FAMILIES)
    assert choose_tasks(level="easy") == TaskChoice("easy", EASY_DEFAULT)
    assert choose_tasks(families=["gcd", "lcm"], level="easy") == TaskChoice("easy", ("gcd", "lcm"))
    assert choose_tasks(families=["bf"]) == TaskChoice("nano", ("bf",))


@pytest.mark.parametrize(
    ("families", "level", "text", "hint"),
    [
        (["letter_count"], "easy", "no task family 'letter_count'", "did you mean letter_counting"),
        (["gcd"], "nano", "gcd has no level 'nano'", "--level"),
        (None, "hard", "no level 'hard'", "nano, worked, easy, full"),
    ],
)
def test_an_invalid_choice_is_reported_with_a_hint(
    families: list[str] | None, level: str, text: str, hint: str
) -> None:
    with pytest.raises(SapoError, match=text) as caught:
        choose_tasks(families=families, level=level)
    assert (hint in caught.value.hint, caught.value.exit_code) == (True, 2)


def test_a_model_that_cannot_be_read_asks_for_the_level(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="cannot read how large the model") as caught:
        choose_tasks(model=str(tmp_path))
    assert "--level" in caught.value.hint


def test_a_node_alone_is_not_told_to_name_a_level(tmp_path: Path) -> None:
    """`sapo join` has no --level; what the model lacks is told as `sapo doctor` tells it."""
    with pytest.raises(SapoError) as asked:
        make_skeleton(str(tmp_path))
    with pytest.raises(SapoError) as caught:
        alone_manifest("alone", LearnerConfig(model=str(tmp_path)))
    assert (caught.value.text, caught.value.hint) == (asked.value.text, asked.value.hint)


@pytest.mark.parametrize(
    ("name", "level", "tokens"),
    [
        ("basic_arithmetic", "nano", 64),
        ("basic_arithmetic", "worked", 128),
        ("calendar_arithmetic", "worked", 256),
        ("gcd", "easy", 264),
        ("rubiks_cube", "easy", 768),
        ("basic_arithmetic", "full", 1024),
    ],
)
def test_the_token_limit_follows_the_tasks(name: str, level: str, tokens: int) -> None:
    chosen = Suite(catalogue.REASONING_GYM, (catalogue.family(name, level),), Digest(bytes(32)))
    assert tokens_for(chosen) == tokens


def test_a_swarm_that_difficulty_follows_has_all_levels_and_their_ladders() -> None:
    chosen = choose_tasks(families=["basic_arithmetic", "arc_1d"], level="nano", difficulty="follow")
    suite = chosen.suite()
    levels = [(each.name, each.level) for each in suite.families]
    assert levels == [
        ("basic_arithmetic", "nano"),
        ("arc_1d", "nano"),
        ("basic_arithmetic", "nano-2"),
        ("basic_arithmetic", "nano-3"),
    ]
    assert difficulty_of(suite) == Difficulty(ladders=((0, 2, 3),))
    assert difficulty_of(choose_tasks(families=["arc_1d"], level="nano").suite()) is None


@pytest.mark.parametrize(
    ("level", "difficulty", "text"),
    [("full", "follow", "has a level above 'full'"), ("nano", "rising", "no difficulty 'rising'")],
)
def test_levels_without_ladders_are_refused_with_difficulty_follow(
    level: str, difficulty: str, text: str
) -> None:
    with pytest.raises(SapoError, match=text) as refused:
        choose_tasks(level=level, difficulty=difficulty)
    assert refused.value.exit_code == ExitCode.USAGE
    assert refused.value.hint is not None
    assert "--difficulty" in refused.value.hint or "say fixed" in refused.value.hint
