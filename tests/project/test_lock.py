"""The lock: it satisfies ``pyproject.toml`` and names neither builds of PyTorch nor package locations."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = runpy.run_path(str(ROOT / ".ci/lock.py"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
    }
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


def _pins(file: str, target: dict[str, str]) -> dict[str, str]:
    """Return version by package, as pip would install them on a target."""
    lines = (ROOT / "lock" / file).read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    pins: dict[str, str] = {}
    for line in lines:
        requirement = Requirement(line.partition(" --hash")[0]) if re.match(r"[A-Za-z0-9]", line) else None
        if requirement and (requirement.marker is None or requirement.marker.evaluate(target)):
            assert canonicalize_name(requirement.name) not in pins, f"{requirement.name} stands twice"
            pins[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return pins


def _declared(extras: set[str]) -> list[Requirement]:
    """Return what the core and some extras require; an extra may name others of the same project."""
    project = PROJECT["project"]
    lines: list[str] = list(project["dependencies"])
    waiting = sorted(extras)
    for extra in waiting:
        for line in project["optional-dependencies"][extra]:
            own = Requirement(line)
            lines += [line] * (own.name != project["name"])
            waiting += sorted(own.extras - set(waiting)) if own.name == project["name"] else []
    return [own for own in map(Requirement, lines) if own.name != "torch"]


@pytest.mark.parametrize(
    "target", TARGETS, ids=lambda target: "{python_version}-{platform_machine}".format(**target)
)
@pytest.mark.parametrize(
    ("file", "extras"),
    [("dev.txt", LOCK["extras"]() - LOCK["UNLOCKED"]), ("demo.txt", LOCK["extras"]() & LOCK["DEMO"])],
    ids=["dev", "demo"],
)
def test_the_pins_satisfy_the_project(file: str, extras: set[str], target: dict[str, str]) -> None:
    pins = _pins(file, target)
    wanted = [own for own in _declared(extras) if own.marker is None or own.marker.evaluate(target)]
    wrong = [
        str(own)
        for own in wanted
        if not own.specifier.contains(pins.get(canonicalize_name(own.name), "0"), prereleases=True)
    ]
    assert wrong == [], "renew the lock with: make lock"


def test_the_demo_installs_what_the_tests_install() -> None:
    for target in TARGETS:
        assert _pins("demo.txt", target).items() <= _pins("dev.txt", target).items()


@pytest.mark.parametrize("file", ["dev.txt", "demo.txt"])
def test_every_pin_has_hashes(file: str) -> None:
    text = (ROOT / "lock" / file).read_text(encoding="utf-8")
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("file", ["dev.txt", "demo.txt", "torch.txt"])
def test_the_lock_names_no_host_and_no_build_of_pytorch(file: str) -> None:
    text = (ROOT / "lock" / file).read_text(encoding="utf-8")
    assert re.findall(r"https?://|file:|--index|--find-links| @ ", text) == []
    assert re.findall(r"(?m)^(?:torch==|triton|nvidia-|cuda-).*", text) == []


def test_pytorchs_range_is_the_projects() -> None:
    assert LOCK["torch_range"]() in (ROOT / "lock/torch.txt").read_text(encoding="utf-8").splitlines()


def test_the_lock_leaves_out_torch_and_its_dependencies() -> None:
    pins = (
        "torch==2.13.0 \\\n    --hash=a\nnvidia-nccl-cu13==2 \\\n    --hash=b\ntrio==0.35 \\\n    --hash=c\n"
    )
    assert LOCK["without_torch"](pins) == "trio==0.35 \\\n    --hash=c\n"
