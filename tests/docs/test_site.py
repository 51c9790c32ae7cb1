"""The documentation site: built strictly, complete, searchable, and without requests to other hosts."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
ROLES = ("newcomer", "operator", "auditor", "researcher", "code-auditor")
COMPLAINTS = 15


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [recipe] = re.findall(r"(?m)^docs: .*\n((?:\t.+\n)+)", makefile)
    words = recipe.split()
    assert words[:4] == ["NO_MKDOCS_2_WARNING=1", "$(BIN)/mkdocs", "build", "--strict"]
    command = [sys.executable, "-m", "mkdocs", *words[2:], "--site-dir", str(folder)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Page(HTMLParser):
    """What a page refers to, and the places in it that can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "source", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href", ""))


def _pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    wanted = {page for page in pages if page.parts[0] != "upstream"}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    names = {
        page.with_name("index.html") if page.stem == "README" else page.with_suffix(".html")
        for page in wanted
    }
    assert names - made == set()
    assert {Path("roles", f"{role}.html") for role in ROLES} <= made
    assert {Path(f"{name}.html") for name in ("overview", "protocol", "verification", "faq")} <= made


def test_every_link_is_valid(site: Path) -> None:
    pages, wrong = _pages(site), []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = unquote(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            if file.is_dir():
                file /= "index.html"
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].places):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


def test_no_list_or_table_is_rendered_as_text(site: Path) -> None:
    """The site's Markdown needs an empty line before them, GitHub's does not."""
    as_text = [
        f"{path.relative_to(site)}: {paragraph[:60]}"
        for path in site.rglob("*.html")
        for paragraph in re.findall(r"(?s)<p>(.*?)</p>", path.read_text(encoding="utf-8"))
        if re.search(r"\n\s*(\* |1\. |\| )", paragraph)
    ]
    assert as_text == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    foreign = {
        source
        for page in _pages(site).values()
        for source in page.loaded
        if re.match(r"([a-z]+:)?//", source)
    }
    assert foreign == set()


def test_the_search_finds_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"faq.html", "plugins.html", "protocol.html", "adr/api-import-name.html"} <= found
    assert any("explain" in entry["text"] for entry in index["docs"] if entry["location"].startswith("faq"))


def test_the_faq_answers_fifteen_complaints() -> None:
    text = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^### ", text.partition("\n## Other questions")[0])[1:]
    numbers = [int(part.partition(".")[0]) for part in parts]
    assert numbers == list(range(1, COMPLAINTS + 1))
    assert [part.partition("\n")[0] for part in parts if len(part.partition("\n")[2].split()) < 15] == []


def test_the_front_page_leads_to_every_role(site: Path) -> None:
    links = _pages(site)[site / "index.html"].links
    assert [role for role in ROLES if f"roles/{role}.html" not in links] == []
