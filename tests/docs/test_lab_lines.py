"""Each `sapo lab` command beside a table of the reports is one that the program takes, names included."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from support.docs_reader import ROOT

from sapo_client.cli.app import app
from sapo_client.lab.arms import arms_named
from sapo_client.lab.attackers.campaign import campaign_of
from sapo_client.lab.attackers.guarded_runs import tactics_named
from sapo_client.lab.plan import planned, seeds_of

REPORTS = ("results", "results-history", "experiment", "experiment-notes", "scale", "incentives", "faq")
LINE = re.compile(r"(?m)^ {4}(sapo lab [^#\n]+)|`(sapo lab (?:[a-z]+ )?-[^`]+)`")


def _lines() -> list[tuple[str, str]]:
    found = []
    for name in REPORTS:
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        found += [(name, (block or inline).strip()) for block, inline in LINE.findall(text)]
    return list(dict.fromkeys(found))


LINES = _lines()


def test_the_reports_have_commands() -> None:
    assert len(LINES) > 40
    assert {page for page, _ in LINES} >= {"results", "experiment", "experiment-notes", "scale", "incentives"}


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}:{line[9:70]}" for page, line in LINES])
def test_a_command_of_a_report_is_taken(page: str, line: str) -> None:
    _, group, name, *words = shlex.split(line)
    assert group == "lab"
    lab: Any = typer.main.get_command(app)
    outer = typer.Context(lab, info_name="sapo")
    group_command = lab.get_command(outer, "lab")
    inner_context = typer.Context(group_command, info_name="lab", parent=outer)
    command = group_command.get_command(inner_context, name)
    assert command is not None, f"{page}: there is no sapo lab {name}"
    context = typer.Context(command, info_name=name, parent=inner_context)
    given, rest, _order = command.make_parser(context).parse_args(list(words))
    assert rest == []
    if name in ("run", "attack"):
        _check_plan(name, given)
    if name == "guard":
        tactics_named(given.get("tactic", "").split(",") if given.get("tactic") else ())


def _check_plan(name: str, given: dict[str, Any]) -> None:
    """Resolve all names as the command does, before anything is run."""

    def number(option: str) -> int | None:
        return int(given[option]) if option in given else None

    def names(option: str) -> tuple[str, ...] | None:
        return tuple(given[option].split(",")) if option in given else None

    plan = planned(
        given.get("preset", "quick"),
        rounds=number("rounds"),
        agents=number("agents"),
        families=names("families"),
        level=given.get("level"),
        held_out_per_family=number("held_out"),
        canary=number("canary"),
    )
    arms_named(list(names("arms") or ("imitate",)))
    assert seeds_of(given.get("seeds", "5"))
    if name == "attack":
        attackers = tuple(map(int, names("attackers") or ()))
        campaign_of(Path("none"), plan, names("attack") or (), attackers, number("alone_rounds"))
