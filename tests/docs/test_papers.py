"""The page of papers: it contains every number that the sources cite, and all files that it names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
SOURCES = ("protocol", "verification", "client", "tests", "contracts/src", "contracts/test")
ARXIV = re.compile(r"(?i)arxiv[ :]*(?:\.org/abs/)?(\d{4}\.\d{5})")
FILES = re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", PAGE)


def _cited() -> Iterator[tuple[str, str]]:
    """Yield each arXiv number of the source tree with the file that cites it."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".sol") and "node_modules" not in path.parts:
                name = path.relative_to(ROOT).as_posix()
                yield from ((number, name) for number in ARXIV.findall(path.read_text(encoding="utf-8")))


def test_every_cited_number_is_on_the_page() -> None:
    cited = list(_cited())
    assert len(cited) >= 8
    assert [(number, file) for number, file in cited if number not in PAGE] == []


def test_each_number_has_a_file_that_cites_it() -> None:
    """A row's first file that cites arXiv at all cites the row's number."""
    cited = set(_cited())
    rows = [line for line in PAGE.splitlines() if ARXIV.search(line)]
    assert rows
    for row in rows:
        files = re.findall(r"`([\w./-]+\.py)`", row)
        assert any((number, file) in cited for number in ARXIV.findall(row) for file in files), row


@pytest.mark.parametrize("file", sorted(set(FILES)))
def test_the_file_exists(file: str) -> None:
    assert (ROOT / file).is_file()


def test_each_row_has_its_four_cells() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}
    sources = [row for row in rows if not row.startswith(("| source", "| ---"))]
    assert [row for row in sources if not any(f"`{file}`" in row for file in FILES)] == []
