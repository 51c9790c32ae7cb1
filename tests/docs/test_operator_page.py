"""docs/operator.md and docs/operator-trial.md name tests, commands, settings, stores and files that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sapo_client.cli.app import app
from sapo_client.config_layers import fields
from sapo_client.paths import DataDir

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / "operator.md",
    ROOT / "docs" / "operator-trial.md",
    ROOT / "client" / "deploy" / "README.md",
]
TEXT = PAGES[0].read_text(encoding="utf-8")
TRIAL = PAGES[1].read_text(encoding="utf-8")


def test_tests_named_on_the_trial_page_exist() -> None:
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", TRIAL))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 15
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_links_of_the_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(sapo [^#\n]*)", text, re.MULTILINE) + re.findall(r"`(sapo [^`]*)`", text)
    assert lines
    for line in lines:
        group: Any = typer.main.get_command(app)
        for word in line.split()[1:]:
            if not hasattr(group, "list_commands") or word.startswith("-"):
                break
            group = group.get_command(typer.Context(group), word)
            assert group is not None, line
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_settings_named_on_the_page_exist() -> None:
    sections = {name.partition(".")[0] for name in fields() if "." in name}
    named = re.findall(rf"`((?:{'|'.join(sections)})\.[a-z_]+)", TEXT)
    assert set(named) - {"outcomes.sqlite"} <= set(fields())


def test_every_permanent_file_has_a_stated_retention() -> None:
    """All files of a data directory except small ones that are rewritten in place."""
    rewritten = {
        "lock", "control_token", "control_address", "config", "manifest", "swarm_settings", "clean_shutdown",
    }  # fmt: skip
    data = DataDir(Path("/d"))
    kept = [name for name, value in vars(DataDir).items() if isinstance(value, property)]
    files = {str(getattr(data, name).relative_to(data.root)) for name in kept if name not in rewritten}
    table = TEXT.partition("## How long everything is kept")[2].partition("\n## ")[0]
    assert [file for file in sorted(files) if f"`{file}" not in table] == []


def test_the_table_of_the_trial_has_every_row() -> None:
    section = TRIAL.partition("## The trial of 0.1.0")[2].partition("\n## ")[0]
    numbers = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 15))


def test_the_trial_page_has_a_row_for_every_complaint_and_point() -> None:
    rows = re.findall(r"^\| ([CP]\d+) \|(.*)\|$", TRIAL, re.MULTILINE)
    wanted = [*(f"C{number}" for number in range(1, 16)), *(f"P{number}" for number in range(1, 15))]
    assert [number for number, _ in rows] == wanted
    for number, row in rows:
        _what, command, outcome = (cell.strip() for cell in row.split(" | "))
        assert "`sapo " in command or "`make " in command, number
        assert outcome.startswith(("works:", "partly:", "not tried again:")), number
