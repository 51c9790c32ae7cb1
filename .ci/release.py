"""Check a release's tag: ``release.py v0.2.0`` fails unless version, tag and changelog say the same."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, version: str, changelog: str) -> list[str]:
    """Return what contradicts a release under this tag, one sentence each.

    Args:
        tag: the tag's name, such as ``v0.2.0``.
        version: the version in ``pyproject.toml``.
        changelog: the text of ``CHANGELOG.md``.
    """
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag} and the version {version}: tag v{version}, or change pyproject.toml")
    if not re.search(rf"(?m)^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", changelog):
        found.append(f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD`: rename `Unreleased`")
    return found


def main() -> None:
    """Compare the tag named on the command line with the tree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = problems(sys.argv[1], project["version"], changelog)
    if found:
        sys.exit("error: " + "; ".join(found))


if __name__ == "__main__":
    main()
