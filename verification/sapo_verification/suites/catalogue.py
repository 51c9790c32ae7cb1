"""The task families of which suites are built, at every level.

The nine of the SAPO paper have the levels ``full`` and ``nano``, seven of them also ``nano-2`` and
``nano-3``, six also ``worked`` (``families/paper.py``). Every other family of ReasoningGYM that can be made
safe and deterministic has the level ``full`` and mostly ``easy`` (``families/``). The rest are listed with
the reason in ``families/excluded.py``.

Everything here is part of the suite's digest: any change gives another swarm id.
"""

import json
from collections.abc import Sequence
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.suite import Family, Suite
from sapo_verification.suites.families import KINDS
from sapo_verification.suites.families.kinds import Config
from sapo_verification.suites.families.paper import (
    FAMILIES,
    NANO_DEFAULT,
    PAPER_FULL,
    PAPER_NANO,
    PAPER_STEPS,
    PAPER_WORKED,
)
from sapo_verification.tasks.bundled import RELEASE

REASONING_GYM: Final = RELEASE
"""Releases generate different questions (0.1.19 and 0.1.25 share five tasks), so the suite names one."""

LEVELS: Final = ("nano", "full")
"""Those of all the paper's families; the others have ``full`` and mostly ``easy`` (``levels``)."""

WORKED: Final = tuple(name for name in FAMILIES if name in PAPER_WORKED)
"""The paper's families that have a ``worked`` level too."""

NAMES: Final = (*FAMILIES, *KINDS)
"""Every family of the catalogue, the paper's first."""

FULL_PROMPT: Final = (
    "Solve the problem below. Reason step by step, then write the answer between <answer> and </answer>.\n"
    "Put nothing else between the tags. Where the problem shows an answer format, keep to it exactly.\n"
    "\n{question}\n"
)
LOGIC_PROMPT: Final = FULL_PROMPT + (
    "Relate two of the variables by one connective, and say all that the statements say about those two.\n"
    "If the statements relate no two variables, conclude one variable or its negation.\n"
)
"""Added because the generator's question alone would be answered by any weak disjunction."""

TERSE_PROMPT: Final = "{question}\n"

FULL_COMPLETION_BYTES: Final = 4096
"""About 1,000 tokens of reasoning; sixteen of them fill a group's 64 KiB exactly."""

REASONING_BYTES: Final = {"easy": 1024, "full": 2048}
"""Bytes of a completion besides twice its family's longest answer; the sum never exceeds the cap above."""

__all__ = ["FAMILIES", "LEVELS", "NAMES", "NANO_DEFAULT", "WORKED", "family", "levels", "suite"]


class SuiteMismatch(LocalProtocolError):
    """Refusal of a manifest whose suite this installation cannot derive, so it cannot join that swarm."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


def family(name: str, level: str) -> Family:
    """Return one family of the catalogue.

    Raises:
        LocalProtocolError: there is no such family or level.
    """
    if name not in NAMES:
        raise LocalProtocolError(f"there is no task family {name!r}; choose from {', '.join(NAMES)}")
    if level not in levels(name):
        raise LocalProtocolError(f"{name} has no level {level!r}; choose from {', '.join(levels(name))}")
    if name in KINDS:
        return _kind(name, level)
    return _full(name) if level == "full" else _terse(name, level)


def levels(name: str) -> tuple[str, ...]:
    """Return the levels of one family, the easier first."""
    if name in KINDS:
        return tuple(KINDS[name].levels)
    steps = (*PAPER_STEPS.get(name, ()), *(("worked",) if name in WORKED else ()))
    return ("nano", *steps, "full")


def suite(level: str, families: Sequence[str] | None = None) -> Suite:
    """Return the suite of some families (all nine when none are named) at one level.

    Starts one worker process to derive the sample items that the suite's digest covers.
    """
    from sapo_verification.jail.launch import sample_digest

    chosen = tuple(family(name, level) for name in (FAMILIES if families is None else families))
    return Suite(reasoning_gym=REASONING_GYM, families=chosen, sample_digest=sample_digest(chosen))


def ladder_levels(name: str, level: str) -> tuple[str, ...]:
    """Return a family's levels from ``level`` on with the same form of prompt and answer, easiest first."""
    above = levels(name)[levels(name).index(level) :]
    form = _form(family(name, level))
    return tuple(each for each in above if _form(family(name, each)) == form)


def ladder_suite(level: str, families: Sequence[str]) -> Suite:
    """Return the suite of some families at a level and those above it, ordered by level, lowest first.

    Starts one worker process to derive the sample items that the suite's digest covers.
    """
    from sapo_verification.jail.launch import sample_digest

    lowest = [(name, level) for name in families]
    higher = [(name, each) for name in families for each in ladder_levels(name, level)[1:]]
    chosen = tuple(family(name, each) for name, each in lowest + higher)
    return Suite(reasoning_gym=REASONING_GYM, families=chosen, sample_digest=sample_digest(chosen))


def ladders_of(suite: Suite) -> tuple[tuple[int, ...], ...]:
    """Return the ladders of a suite: for each family with several levels, their suite indices, easiest
    first."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(suite.families):
        places.setdefault(each.name, []).append(place)
    return tuple(tuple(ladder) for ladder in places.values() if len(ladder) > 1)


def _form(chosen: Family) -> tuple[str, str]:
    return chosen.prompt, chosen.answer


def check_suite(wanted: Suite) -> None:
    """Raise unless this installation derives exactly the items of a manifest's suite.

    Raises:
        SuiteMismatch: this installation has another ReasoningGYM release, or derives other items with the
            same.
    """
    from sapo_verification.jail.launch import sample_digest

    _refuse_strange_families(wanted)
    if wanted.reasoning_gym != REASONING_GYM:
        raise SuiteMismatch(
            f"the swarm's suite needs reasoning-gym {wanted.reasoning_gym}, this sapo has {REASONING_GYM}",
            "install the release of sapo that made the manifest, or ask for a manifest made by this release",
        )
    if sample_digest(wanted.families) != wanted.sample_digest:
        raise SuiteMismatch(
            "this machine derives other task items than the swarm's suite",
            "the manifest was made by another release of sapo; use that release, or ask for a new manifest",
        )


def _refuse_strange_families(wanted: Suite) -> None:
    """Raise unless all generators, settings and scorers are in the catalogue; no others are ever run."""
    from sapo_verification.tasks.scorers import SCORERS

    for each in wanted.families:
        if each.name not in NAMES or each.scorer not in SCORERS:
            raise SuiteMismatch(
                f"the swarm's suite has {each.name} scored by {each.scorer}, unknown to this release",
                "update sapo, or ask for a manifest made by this release",
            )
        if strange := json.loads(each.config).keys() - _settings(each.name):
            raise SuiteMismatch(
                f"the suite sets {', '.join(sorted(strange))} of {each.name}, unknown to this release",
                "update sapo, or ask for a manifest made by this release",
            )


def _settings(name: str) -> set[str]:
    """Return the settings that the catalogue's levels use; others of a generator might read files."""
    return {key for level in levels(name) for key in json.loads(family(name, level).config)}


def _full(name: str) -> Family:
    scorer, config = PAPER_FULL[name]
    text = canonical({**config, "size": 1, "render": "question/1"})
    prompt = LOGIC_PROMPT if name == "propositional_logic" else FULL_PROMPT
    return Family(
        name=name,
        level="full",
        config=text,
        scorer=scorer,
        prompt=prompt,
        answer="tag",
        max_completion_bytes=FULL_COMPLETION_BYTES,
    )


def _terse(name: str, level: str) -> Family:
    scorer, config, cap_bytes = PAPER_WORKED[name] if level == "worked" else PAPER_NANO[name]
    if level in PAPER_STEPS.get(name, ()):
        changes, cap_bytes = PAPER_STEPS[name][level]
        config = {**config, **changes}
    text = canonical({**config, "size": 1, "render": "compact/1"})
    return Family(
        name=name,
        level=level,
        config=text,
        scorer=scorer,
        prompt=TERSE_PROMPT,
        answer="tag" if level == "worked" else "plain",
        max_completion_bytes=cap_bytes,
    )


def _kind(name: str, level: str) -> Family:
    kind = KINDS[name]
    chosen = kind.levels[level]
    text = canonical({**chosen.config, "size": 1, "render": "question/1"})
    prompt = f"{FULL_PROMPT}{kind.hint}\n" if kind.hint else FULL_PROMPT
    cap_bytes = min(REASONING_BYTES[level] + 2 * chosen.answer_bytes, FULL_COMPLETION_BYTES)
    return Family(
        name=name,
        level=level,
        config=text,
        scorer=kind.scorer,
        prompt=prompt,
        answer="tag",
        max_completion_bytes=cap_bytes,
    )


def canonical(config: Config) -> str:
    """Return the canonical JSON text of a generator's configuration."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))
