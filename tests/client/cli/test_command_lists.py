"""The lists of commands: whole sentences on every terminal."""

from __future__ import annotations

import pytest
from support.sapo_process import Run


@pytest.mark.parametrize("group", [(), ("keys",), ("keys", "signing"), ("swarm",), ("swarm", "change")])
@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_summary_of_a_command_is_cut(sapo: Run, group: tuple[str, ...], columns: str) -> None:
    shown = sapo(*group, "--help", COLUMNS=columns).stdout
    commands = shown.partition("\nCommands:\n")[2]
    assert commands
    assert "..." not in commands
    assert all(len(line) <= int(columns) for line in shown.splitlines())


def test_a_summary_is_the_first_statement_of_the_help(sapo: Run) -> None:
    shown = " ".join(sapo("--help").stdout.split())
    assert " stop Stop the running node after it has drained and saved a checkpoint. id Show " in shown
    assert " ledger Show, claim, explain and audit points; bond tokens; challenge false postings;" in shown
