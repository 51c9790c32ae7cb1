"""The decision records: one form, true file names, and a complete index."""

import datetime
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/adr"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
PARTS = ["Problem", "Decision", "Alternatives", "Cost", "Evidence"]
HEAD = re.compile(
    r"# (?P<title>[^\n]+)\n\nDate: (?P<date>\d{4}-\d\d-\d\d)  \nStatus: (?P<status>[^\n]+)\n\n## "
)
STATUS = re.compile(r"Accepted( for [\w .-]+)?|Superseded by \[[\w-]+\]\((?P<page>[\w-]+\.md)\)")
BASES = ("", "client/sapo_client/", "docs/", "verification/sapo_verification/", "protocol/sapo_protocol/")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|json|sol|toml|mjs))`")

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def _head(page: Path) -> re.Match[str]:
    head = HEAD.match(page.read_text(encoding="utf-8"))
    assert head, f"{page.name} begins with title, Date, Status, and a part"
    return head


def test_decision_pages_are_found() -> None:
    assert PAGES


@by_page
def test_the_page_has_the_form(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"(?m)^## (.+)\n", text)[1:]
    assert parts[::2] == PARTS
    assert [name for name, body in zip(parts[::2], parts[1::2], strict=True) if not body.strip()] == []
    assert datetime.date.fromisoformat(_head(page)["date"])


@by_page
def test_the_status_is_one_of_the_two(page: Path) -> None:
    status = STATUS.fullmatch(_head(page)["status"])
    assert status, "Accepted, or Superseded by [page](page.md)"
    assert status["page"] is None or (FOLDER / status["page"]).is_file()


@by_page
def test_alternatives_are_listed_and_evidence_can_be_looked_at(page: Path) -> None:
    _, *parts = re.split(r"(?m)^## .+\n", page.read_text(encoding="utf-8"))
    alternatives, evidence = parts[2], parts[4]
    assert re.search(r"(?m)^\* \*\*", alternatives)
    assert re.search(r"`(tests/|sapo |make |python |contracts/)", evidence)


@by_page
def test_files_and_pages_named_by_a_decision_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if "Superseded" in _head(page)["status"]:
        pytest.skip("a page that is superseded speaks of the files of its time")
    missing = [
        name for name in FILE.findall(text) if not any((ROOT / base / name).exists() for base in BASES)
    ]
    links = [
        name for name in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text) if not (FOLDER / name).exists()
    ]
    assert (missing, links) == ([], [])


def test_the_index_is_complete() -> None:
    heads = [(page, _head(page)) for page in PAGES]
    rows = [
        f"| [{page.stem}]({page.name}) | {head['title']} | {head['date']} | {head['status']} |"
        for page, head in heads
    ]
    index = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in index if line.startswith("| [")] == rows
