"""The generated reference agrees with the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sapo_process import Run

from sapo_client.cli.reference import main, pages

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_committed_page_is_current(name: str, tmp_path: Path) -> None:
    main([str(tmp_path)])
    made = (tmp_path / name).read_text(encoding="utf-8")
    hint = "run: python -m sapo_client.cli.reference docs/reference"
    assert (FOLDER / name).read_text(encoding="utf-8") == made, hint


@pytest.mark.parametrize("command", ["join", "keys new", "config show", "ledger explain", "testnet up"])
def test_the_page_holds_the_help_that_a_user_sees(sapo: Run, command: str) -> None:
    page = "".join(pages()["cli.md"].split())  # lines are broken elsewhere, even at hyphens
    seen = "".join(sapo(*command.split(), "--help").stdout.split())
    assert seen
    assert seen in page
