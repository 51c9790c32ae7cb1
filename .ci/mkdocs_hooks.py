"""Hooks of the documentation site: pages from outside `docs/`, and links to files of the source tree.

Pages link to each other as they lie in the repository, so that they can be read there, too. The site holds
some pages from outside `docs/` under other names. A link to any other file of the repository becomes its path
as text, or a link to the repository's host if the variable SAPO_REPOSITORY names one.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "protocol/README.md": "protocol.md",
    "verification/README.md": "verification.md",
    "tests/vectors/README.md": "vectors.md",
}
"""Pages from outside `docs/`, with their names on the site."""

LISTED = {"Decisions": "adr", "Reference": "reference"}
LINK = re.compile(r"(?<!`)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"(?ms)^```.*?^```$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections that list a whole folder."""
    docs = Path(config.docs_dir)
    for section in config.nav or []:
        [(title, _)] = section.items() if isinstance(section, dict) else [("", None)]
        if title in LISTED:
            pages = sorted(
                (docs / LISTED[title]).glob("*.md"), key=lambda path: (path.stem != "README", path.stem)
            )
            section[title] = [path.relative_to(docs).as_posix() for path in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links that work on the site."""
    own = next(
        (source for source, name in OUTSIDE.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}"
    )
    kept: list[str] = []

    def keep(fence: re.Match[str]) -> str:
        kept.append(fence[0])
        return f"\0{len(kept) - 1}\0"

    text = LINK.sub(lambda link: _link(link, own, page.file.src_uri), FENCE.sub(keep, markdown))
    return re.sub(r"\0(\d+)\0", lambda place: kept[int(place[1])], text)


def _link(link: re.Match[str], own: str, here: str) -> str:
    mark, text, target = link.groups()
    if re.match(r"[a-z]+:|#", target):
        return link[0]
    path, _, anchor = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
    if not (ROOT / found).exists():
        raise PluginError(f"{own} links to {target}, which is not there")
    if (name := _on_site(found)) is not None:
        relative = posixpath.relpath(name, posixpath.dirname(here) or ".")
        return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"
    if host := os.environ.get("SAPO_REPOSITORY"):
        return f"[{text}]({host.rstrip('/')}/blob/main/{found})"
    return text if found in text.strip("`") else f"{text} (`{found}`)"


def _on_site(found: str) -> str | None:
    """Return the name on the site of a file of the repository, if it is there."""
    if found in OUTSIDE:
        return OUTSIDE[found]
    if not found.startswith("docs/") or found.startswith("docs/upstream/"):
        return None
    inner = found.removeprefix("docs/")
    if (ROOT / found).is_dir():
        index = f"{inner}/README.md"
        return index if (ROOT / "docs" / index).is_file() else None
    return None if found.endswith((".py", ".ipynb")) else inner
