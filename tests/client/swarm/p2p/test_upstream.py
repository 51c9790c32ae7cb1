"""The patches for py-libp2p: each applies to the installed release, shows its fault and fixes it.

Reproducers run in processes of their own, on the installed sources and on a patched copy of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import libp2p
import pytest

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docs/upstream/py-libp2p"
REPRODUCERS = FOLDER / "reproducers"
PATCHES = sorted(FOLDER.glob("*.patch"))
INSTALLED = Path(libp2p.__file__).parents[1]


def _reproducer(patch: Path) -> str:
    return patch.stem.replace("-", "_")


def _patched(folder: Path, *patches: Path) -> Path:
    """Return a folder with a copy of the installed sources and the patches applied to it."""
    shutil.copytree(INSTALLED / "libp2p", folder / "libp2p", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", *map(str, patches)], cwd=folder, check=True)
    return folder


def _run(script: str, sources: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, str(REPRODUCERS / script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def _found(sources: Path) -> dict[str, str]:
    """Return what each reproducer found on these sources."""
    done = _run("run_all.py", sources)
    assert done.stderr == ""
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert done.returncode == (set(found.values()) != {"-"})
    return found


def test_every_fault_is_in_the_installed_release() -> None:
    found = _found(INSTALLED)
    assert list(found) == [_reproducer(patch) for patch in PATCHES]
    assert "-" not in found.values(), "upstream has fixed a fault: our own fix can be removed"


def test_the_patches_together_fix_every_fault(tmp_path: Path) -> None:
    assert _found(_patched(tmp_path, *PATCHES)) == {_reproducer(patch): "-" for patch in PATCHES}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_each_patch_applies_alone_and_has_a_complete_message(patch: Path, tmp_path: Path) -> None:
    _patched(tmp_path, patch)
    text = patch.read_text(encoding="utf-8")
    subject = re.search(r"^Subject: \[PATCH\] (\w+: .+)$", text, re.MULTILINE)
    message = text.split("\n\n", 1)[1].split("\ndiff --git", 1)[0]
    assert subject is not None
    assert len(subject[1]) <= 72
    assert len(message.split()) >= 30, "the message explains fault and fix"


@pytest.mark.long
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_each_patch_alone_fixes_its_fault(patch: Path, tmp_path: Path) -> None:
    done = _run(f"{_reproducer(patch)}.py", _patched(tmp_path, patch))
    assert (done.returncode, done.stdout, done.stderr) == (0, "the fault is not there\n", "")


def test_the_readme_lists_every_patch_with_files_that_exist() -> None:
    rows = [
        line.split("|")[1:-1] for line in (FOLDER / "README.md").read_text().splitlines() if "](0" in line
    ]
    linked = [re.findall(r"\]\(([^)]+)\)", "|".join(row)) for row in rows]
    assert [links[0] for links in linked] == [patch.name for patch in PATCHES]
    assert [links[1] for links in linked] == [f"reproducers/{_reproducer(patch)}.py" for patch in PATCHES]
    assert all((FOLDER / link).is_file() for links in linked for link in links)
    package = ROOT / "client/sapo_client/swarm/p2p"
    named = {name for row in rows for name in re.findall(r"`(\w+\.py)`", row[-1])}
    assert named <= {path.name for path in package.glob("*.py")}
