"""Every command block of the documentation: a test runs its lines, or checks them against the program.

What is checked: that the command exists, takes these options and this number of arguments; that make targets,
modules, files and extras are there. What is run is listed in ``RUN``.
"""

import re
import shlex
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from support.docs_reader import NOT_RUN, PAGES, PAGES_RUN, ROOT, page_lines, run_lines

from sapo_client.cli.app import app

RUN = dict.fromkeys(PAGES_RUN, "tests/docs/test_pages_run.py")
"""Pages whose blocks are run, all of them or the part that the test names."""

USAGE: Any = typer.BadParameter.__base__
"""What the command line's parser raises."""

SHELL = {"export", "cd", "docker", "git", "python3", "mkdir"}
"""Other words that a line may begin with."""


def _lines() -> list[tuple[str, str]]:
    found = [(page, line) for page in PAGES for line in page_lines(page)]
    trial = "docs/operator-trial.md"  # its commands are in a table
    text = (ROOT / trial).read_text(encoding="utf-8")
    return found + [(trial, line) for line in re.findall(r"`((?:sapo|make) [^`]+)`", text)]


LINES = _lines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"(?m)^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8")))


def test_there_are_commands() -> None:
    assert len(LINES) > 60
    assert {page for page, _ in LINES} >= {"README.md", "CONTRIBUTING.md", "docs/testnet.md"}


def test_each_executed_page_is_named_by_the_test_that_runs_it() -> None:
    for page, test in RUN.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_every_line_of_every_page_is_run_or_has_a_reason() -> None:
    """A page that is not followed has no line that could be run."""
    assert {page: run_lines(page) for page in PAGES if page not in RUN and run_lines(page)} == {}


def test_every_reason_is_of_some_line() -> None:
    lines = [line for page in PAGES for line in page_lines(page)]
    assert [words for words in NOT_RUN if not any(line.startswith(words) for line in lines)] == []


def _inline() -> list[tuple[str, str]]:
    """Return the commands inside sentences and tables, and the lines of blocks that are only indented."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        inside = re.findall(r"`((?:[A-Z_0-9]+=\S+ )*sapo [a-z][^`\n]*)`", text)
        indented = [re.sub(r"\s+#.*$", "", line) for line in re.findall(r"(?m)^    (sapo [a-z].*)$", text)]
        found += [(page, line) for line in (*inside, *indented) if " | " not in line]
    return found


def test_every_command_inside_a_sentence_exists_with_its_options() -> None:
    """What it needs besides may be left out there, as in `sapo keys new` or `sapo doctor --model`."""
    commands, invalid = _inline(), []
    assert len(commands) > 400
    for line, page in {line: page for page, line in commands}.items():
        words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z][A-Z_0-9]*=.*", word)]
        try:
            _check_sapo(words[1:], is_whole=False)
        except (AssertionError, USAGE) as error:
            if "requires an argument" not in str(error):
                invalid.append((page, line, str(error)))
    assert invalid == []


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}:{line[:60]}" for page, line in LINES])
def test_each_line_is_a_valid_command(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z][A-Z_0-9]*=.*", words[0]):
        words = words[1:]  # a variable for this command
    if not words:
        return
    first, rest = words[0], words[1:]
    if first == "sapo":
        _check_sapo(rest)
    elif first == "make":
        assert {word for word in rest if "=" not in word} <= TARGETS
    elif first in ("python", ".venv/bin/python"):
        _check_python(rest)
    elif first in ("pip", ".venv/bin/pip"):
        assert rest[0] == "install"
        extras = {extra for word in rest for extra in re.findall(r"sapo-swarm\[([\w,]+)\]", word)}
        assert {name for extra in extras for name in extra.split(",")} <= set(
            PROJECT["optional-dependencies"]
        )
    else:
        assert first in SHELL, f"{page}: nothing checks {line!r}"


@cache
def _sapo() -> Any:
    """Return the whole program, which takes a twentieth of a second to make."""
    return typer.main.get_command(app)


def _check_sapo(words: list[str], *, is_whole: bool = True) -> None:
    """Parse the words as the program would, without running the command.

    Args:
        is_whole: whether the command and everything that it needs must be there.

    Placeholders such as ``...`` or ``KEY`` stand for any word; where a value must be a number or a file that
    exists, it is not looked at.
    """
    command = _sapo()
    context = typer.Context(command, info_name="sapo")
    while hasattr(command, "list_commands"):
        if words == ["--help"] or not (words or is_whole):
            return
        assert words, f"a command of {context.info_name} is missing"
        name = words.pop(0)
        inner = command.get_command(context, name)
        assert inner is not None, f"there is no command {name!r}"
        command, context = inner, typer.Context(inner, info_name=name, parent=context)
    if "--help" in words:
        return
    parsed, arguments, _order = command.make_parser(context).parse_args(list(words))
    assert arguments == [], f"too many words: {arguments}"
    required = [each for each in command.get_params(context) if each.required]
    missing = [each.name for each in required if parsed.get(each.name) in (None, ())]
    assert missing == [] or not is_whole, f"missing: {missing}"


def _check_python(words: list[str]) -> None:
    if words[0] == "-m":
        assert find_spec(words[1]) is not None, words[1]
        files = [word for word in words[2:] if word.startswith(("tests/", "docs/"))]
    else:
        files = [words[0]]
    assert [file for file in files if not (ROOT / file.partition("::")[0]).exists()] == []


@pytest.mark.parametrize(
    "line",
    [
        "sapo join --idenity key",
        "sapo jion",
        "sapo ledger explain",
        "sapo ledger explain 3 4",
        "sapo swarm deploy folder --key k",
        "make demos",
        "python -m sapo_client.no_such_module",
        "python docs/examples/no_such_file.py",
        "pip install 'sapo-swarm[no_such_extra]'",
        "curl https://example.org | sh",
    ],
)
def test_an_invalid_line_is_detected(line: str) -> None:
    with pytest.raises((AssertionError, USAGE)):
        test_each_line_is_a_valid_command("a page", line)
