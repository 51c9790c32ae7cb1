"""The packages of the wheel: every one of the source roots, each marked as typed."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_holds_every_package() -> None:
    roots = PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]
    found = {path.parent for root in roots for path in (ROOT / root).glob("*/__init__.py")}
    packed = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {ROOT / name for name in packed} == found
    assert [path.name for path in found if not (path / "py.typed").is_file()] == []
