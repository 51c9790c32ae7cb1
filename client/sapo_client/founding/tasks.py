"""The tasks of a new swarm: the families and the level that its founder names, or those that fit a model.

A model can only learn from tasks that it sometimes solves. A policy of a million parameters never solves the
paper's tasks, and one of half a billion always solves eight-cell puzzles, so the level follows the size.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.sizing.presets import level_for
from sapo_protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from sapo_protocol.suite import Suite
    from sapo_protocol.terms.difficulty import Difficulty

EASY_DEFAULT: Final = (
    "caesar_cipher", "chain_sum", "count_bits", "family_relationships", "gcd", "letter_counting",
    "mini_sudoku", "number_sorting", "prime_factorization",
    "shortest_path", "spell_backward", "time_intervals",
)  # fmt: skip
"""One to three families of each category; none needs an extra."""

_ALL: Final = "docs/reference/families.md lists all families with their levels"


LEVELS: Final = ("nano", "worked", "easy", "full")

FIXED: Final = "fixed"
FOLLOW: Final = "follow"


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """Families of the catalogue, all at one level or from one level on.

    Attributes:
        families: their names; none for the level's default.
        difficulty: ``fixed``, or ``follow`` for the levels above as well, which follow the swarm.
    """

    level: str
    families: tuple[str, ...] = ()
    difficulty: str = FIXED

    def suite(self) -> Suite:
        """Return the suite; starts one worker process to derive the sample items that its digest covers."""
        from sapo_verification.suites import catalogue

        names = self.families or default_families(self.level)
        if self.difficulty == FOLLOW:
            return catalogue.ladder_suite(self.level, names)
        return catalogue.suite(self.level, names)


def difficulty_of(suite: Suite) -> Difficulty | None:
    """Return the ladders of a suite that has families at several levels, else None."""
    from sapo_protocol.terms.difficulty import Difficulty
    from sapo_verification.suites import catalogue

    ladders = catalogue.ladders_of(suite)
    return Difficulty(ladders) if ladders else None


NANO_TASKS: Final = TaskChoice("nano")
"""The level that a policy of a million parameters can learn within minutes."""


def choose_tasks(
    *,
    families: Sequence[str] | None = None,
    level: str | None = None,
    model: str = "bundled",
    difficulty: str = FIXED,
) -> TaskChoice:
    """Return the tasks of a new swarm.

    Args:
        families: their names; None for the level's default.
        level: of all families; None for the one that fits the model.
        model: what most nodes will train, as in ``sapo join --model``; looked at only without a level.
        difficulty: ``fixed`` or ``follow``.

    Raises:
        SapoError: there is no such family, level or difficulty, or no level above to follow to (exit code 2),
            or the model's size cannot be read (3).
    """
    chosen = level or (NANO_TASKS.level if _is_packaged(model) else level_for(parameters_of(model)))
    names = tuple(families) if families else default_families(chosen)
    for name in names:
        _require(name, chosen)
    extras.require_families(names)
    _require_difficulty(difficulty, names, chosen)
    return TaskChoice(chosen, names, difficulty)


def default_families(level: str) -> tuple[str, ...]:
    """Return the families of a level if none are named.

    Raises:
        SapoError: there is no such level.
    """
    from sapo_verification.suites import catalogue

    defaults = {
        "nano": catalogue.NANO_DEFAULT,
        "worked": catalogue.WORKED,
        "easy": EASY_DEFAULT,
        "full": catalogue.FAMILIES,
    }
    if level not in defaults:
        raise SapoError(
            f"there is no level {level!r}", hint=f"levels are {', '.join(LEVELS)}", exit_code=ExitCode.USAGE
        )
    return defaults[level]


def parameters_of(model: str) -> int:
    """Return a model's number of parameters; of one on a hub, only the configuration is read.

    Raises:
        SapoError: the model cannot be found or read.
    """
    from sapo_client.learner.sizing.skeleton import make_skeleton

    try:
        return sum(each.numel() for each in make_skeleton(model).parameters())
    except SapoError as error:
        raise SapoError(
            f"cannot read how large the model {model} is: {error.text}",
            hint=f"name the level of the tasks: --level {', '.join(LEVELS[:-1])} or {LEVELS[-1]}",
            exit_code=ExitCode.CONFIG,
        ) from error


def _require_difficulty(difficulty: str, names: Sequence[str], level: str) -> None:
    from sapo_verification.suites import catalogue

    if difficulty not in (FIXED, FOLLOW):
        raise SapoError(
            f"there is no difficulty {difficulty!r}",
            hint=f"say {FIXED} or {FOLLOW}",
            exit_code=ExitCode.USAGE,
        )
    if difficulty == FOLLOW and all(len(catalogue.ladder_levels(name, level)) < 2 for name in names):
        raise SapoError(
            f"none of these families has a level above {level!r} that is asked in the same way",
            hint=f"start with a lower --level, or say --difficulty {FIXED}",
            exit_code=ExitCode.USAGE,
        )


def _is_packaged(model: str) -> bool:
    return "/" not in model and (files("sapo_client") / "models" / model).is_dir()


def _require(name: str, level: str) -> None:
    from sapo_verification.suites import catalogue

    if name not in catalogue.NAMES:
        close = difflib.get_close_matches(name, catalogue.NAMES, n=1)
        raise SapoError(
            f"there is no task family {name!r}",
            hint=f"did you mean {close[0]}? {_ALL}" if close else _ALL,
            exit_code=ExitCode.USAGE,
        )
    try:
        catalogue.family(name, level)
    except LocalProtocolError as error:
        raise SapoError(
            str(error),
            hint="name the level with --level, other families with --families",
            exit_code=ExitCode.USAGE,
        ) from error
