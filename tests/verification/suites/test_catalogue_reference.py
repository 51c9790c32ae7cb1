"""The page of task families: up to date with the catalogue, and measured as it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_verification.jail.launch import environment
from sapo_verification.suites.catalogue import family
from sapo_verification.suites.reference import DERIVED, Finding, every_level, main, measure, page, row

PAGE = Path(__file__).parents[3] / "docs/reference/families.md"


def without_figures(text: str) -> list[str]:
    """Return the lines, those of the long table without the measured cells."""
    lines = text.splitlines()
    return [line.rsplit(" | ", 4)[0] if line.count(" | ") >= len(DERIVED) + 3 else line for line in lines]


def test_the_page_is_current() -> None:
    """If it fails: ``python -m sapo_verification.suites.reference docs/reference``."""
    unmeasured = [
        row(Finding(family=chosen, solved=0.0, best_constant=0.0, median_ms=0.0, worst_ms=0.0))
        for chosen in every_level()
    ]
    assert without_figures(PAGE.read_text("utf-8")) == without_figures(page(unmeasured))


def test_every_line_on_the_page_passes_the_lint() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines()]
    figures = [row[-4:] for row in rows if len(row) == len(DERIVED) + 4][2:]
    assert len(figures) == len(list(every_level()))
    for solved, best_constant, _, worst_ms in figures:
        assert float(solved) >= 0.9
        assert float(best_constant) < 0.5
        assert float(worst_ms) < 2000  # the checkers' deadline for one call


def test_a_family_is_measured_over_its_items() -> None:
    found = measure(family("spell_backward", "easy"))
    assert (found.solved, found.family.level) == (1.0, "easy")
    assert 0 < found.best_constant < 0.1
    assert 0 <= found.median_ms <= found.worst_ms


def test_a_wrong_call_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_one_family_is_measured_again_and_the_other_rows_stay(tmp_path: Path) -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    old = [f"{line} of before" if line.startswith("| base_conversion") else line for line in lines]
    (tmp_path / "families.md").write_text("\n".join([*old, ""]), "utf-8")
    arguments = [sys.executable, "-m", "sapo_verification.suites.reference", str(tmp_path), "base_conversion"]
    subprocess.run(arguments, env={**os.environ, "PYTHONPATH": environment()["PYTHONPATH"]}, check=True)
    new = (tmp_path / "families.md").read_text("utf-8").splitlines()
    assert without_figures("\n".join(new)) == without_figures("\n".join(lines))
    assert [line for line in new if not line.startswith("| base_conversion")] == [
        line for line in lines if not line.startswith("| base_conversion")
    ]
    assert not any(line.endswith("of before") for line in new)


def test_a_family_that_does_not_exist_is_refused_and_the_page_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "families.md").write_text("the page", encoding="utf-8")
    assert main([str(tmp_path), "base_conversion", "base_conversation"]) == 2
    told = capsys.readouterr().err
    assert "error: there is no task family 'base_conversation'\nhint: " in told
    assert (tmp_path / "families.md").read_text(encoding="utf-8") == "the page"
