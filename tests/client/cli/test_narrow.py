"""Tables on terminals that are narrower than their rows."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from sapo_client.cli.render import cell

SCRIPT = """
from sapo_client.cli.render import Grid, Output
row = ("12D3KooW" + "x" * 44, "0x" + "a" * 40, 0.5, 12, "/ip4/203.0.113.7/tcp/4001")
Output().emit(None, Grid(("peer id", "account", "score", "accepted", "address"), [row, row]))
"""


EMPTY = SCRIPT.replace("[row, row]", "[]")


def shown(columns: int, script: str = SCRIPT) -> list[str]:
    """Return the lines of a wide table on a terminal of so many columns."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    done = subprocess.Popen([sys.executable, "-c", script], stdout=slave, env=environment)
    os.close(slave)
    text = b""
    while True:
        try:
            block = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        text += block
    assert done.wait() == 0
    os.close(master)
    return text.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_gets_a_line_per_value(columns: int) -> None:
    lines = shown(columns)
    first = lines[: lines.index("")]
    assert [line.split()[0] for line in first] == ["peer", "account", "score", "accepted", "address"]
    assert max(map(len, lines)) <= 62
    assert "0x" + "a" * 40 in first[1]


def test_large_amounts_are_written_in_full() -> None:
    assert [cell(value) for value in (0.25, 999.96, 1000.0, 1e8)] == ["0.25", "1000", "1000", "100000000"]


def test_a_wide_terminal_gets_a_table() -> None:
    assert len([line for line in shown(200) if "/tcp/4001" in line]) == 2


def test_a_table_without_rows_is_a_word_and_no_squeezed_heading() -> None:
    assert shown(60, EMPTY) == ["none"]
