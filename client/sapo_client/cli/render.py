"""Output of commands: data on standard output, as tables or JSON; everything else on standard error.

On a terminal tables are drawn by rich; in a pipe they are aligned plain text, one row per line.
Colour never carries meaning alone, and `NO_COLOR` turns it off.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from sapo_client.observe.terminal import plain, plain_json


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and their values, one per line."""

    rows: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a heading."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


Block = Pairs | Grid | str


@dataclass(frozen=True, slots=True)
class Output:
    """Writer of one command's results, notes and warnings."""

    as_json: bool = False
    quiet: bool = False

    def emit(self, document: Any, *blocks: Block) -> None:
        """Print the result: the document with `--json`, the blocks otherwise."""
        if self.as_json:
            sys.stdout.write(plain_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
            return
        for block in blocks:
            _print(block)

    def note(self, text: str) -> None:
        """Print a note on standard error, unless `--quiet` is given."""
        if not self.quiet:
            sys.stderr.write(plain(text) + "\n")

    def warn(self, text: str) -> None:
        """Print a warning on standard error."""
        sys.stderr.write(f"{styled('warning:', 'yellow', sys.stderr)} {plain(text)}\n")


def print_error(text: str, hint: str) -> None:
    """Print an error and its hint on standard error."""
    sys.stderr.write(f"{styled('error:', 'red', sys.stderr)} {plain(text)}\n")
    sys.stderr.write(f"{styled('hint:', 'cyan', sys.stderr)} {plain(hint)}\n")


ANSI = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def styled(text: str, colour: str, stream: TextIO) -> str:
    """Return the text in bold colour if the stream is a terminal with colour."""
    if not wants_colour(stream):
        return text
    return f"\x1b[1;{ANSI[colour]}m{text}\x1b[0m"


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colour, and `NO_COLOR` is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cell(value: Any) -> str:
    """Return a value as a table cell: empty values as a dash, lists with commas."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        case list() | tuple():
            return ", ".join(cell(item) for item in value) or "-"
        case _:
            return plain(str(value))


def _entry(value: Any) -> str:
    """Return a value as an entry of a table, which is one line."""
    return " ".join(cell(value).splitlines())


def _print(block: Block) -> None:
    match block:
        case str():
            sys.stdout.write(plain(block) + "\n")
        case Pairs(rows):
            width = max((len(name) for name, _ in rows), default=0)
            for name, value in rows:
                sys.stdout.write(f"{name:<{width}}  {cell(value)}\n")
        case Grid(rows=[]) if sys.stdout.isatty():  # a heading alone would be squeezed into the width
            sys.stdout.write("none\n")
        case Grid() if sys.stdout.isatty() and _is_too_wide(block, shutil.get_terminal_size().columns):
            _print_records(block)
        case Grid() if sys.stdout.isatty():
            _print_drawn(block)
        case Grid():
            _print_aligned(block)


def _is_too_wide(grid: Grid, columns: int) -> bool:
    """Whether the table's columns would be narrower than two thirds of their content."""
    lines = [grid.columns, *([_entry(value) for value in row] for row in grid.rows)]
    needed = sum(max(len(line[index]) for line in lines) + 2 for index in range(len(grid.columns)))
    return needed > 1.5 * columns


def _print_records(grid: Grid) -> None:
    """Print a table row by row, each value in a line of its own."""
    width = max(map(len, grid.columns))
    bold, usual = ("\x1b[1m", "\x1b[0m") if wants_colour(sys.stdout) else ("", "")
    for row in grid.rows:
        for name, value in zip(grid.columns, row, strict=True):
            sys.stdout.write(f"{bold}{name:<{width}}{usual}  {_entry(value)}\n")
        sys.stdout.write("\n")


def _print_drawn(grid: Grid) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in grid.columns:
        table.add_column(column, overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(_entry(value)) for value in row))  # as text: data holds no markup
    Console(file=sys.stdout, no_color=not wants_colour(sys.stdout)).print(table)


def _print_aligned(grid: Grid) -> None:
    lines = [list(grid.columns), *([_entry(value) for value in row] for row in grid.rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(grid.columns))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")
