"""The threat model is up to date: every attack has a row, every test and file that it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/security/threat-model.md"
ATTACKS = 61


def _rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| \d+ \|", line)
    ]


ROWS = _rows()


def _defined(file: Path) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, kinds)}


TESTS = {file.name: _defined(file) for file in ROOT.glob("tests/**/test_*.py")}


def test_every_attack_has_one_row() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, ATTACKS + 1)]
    assert {len(row) for row in ROWS} == {5}
    assert all(row[1] and row[2] and row[4] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_tests_and_files_named_in_a_row_exist(row: list[str]) -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", row[3])
    assert len(named) == row[3].count("`") // 2, "nothing but tests stands in this column"
    for file, name in named:
        assert name in TESTS.get(file, set()), f"{file}::{name}"
    for file in re.findall(r"`([\w/]+\.(?:py|sol))`", row[2]):
        assert list(ROOT.glob(f"*/**/{file}")), file


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_without_a_test_states_this(row: list[str]) -> None:
    assert row[3] or (row[2] == "none" and "Cannot" in row[4])


def test_the_remaining_risk_is_a_sentence() -> None:
    for row in ROWS:
        assert row[4].endswith("."), row[0]


def test_links_of_the_security_pages_are_valid() -> None:
    for page in (PAGE, ROOT / "docs/SECURITY.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
