"""The workflows of continuous integration: pinned actions, and commands that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")


def _jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return jobs


def _commands(job: dict[str, Any]) -> list[str]:
    """Return a job's shell commands, once for each value of its matrix."""
    commands = [step["run"] for step in job["steps"] if "run" in step]
    for name, values in job.get("strategy", {}).get("matrix", {}).items():
        commands = [
            command.replace(f"${{{{ matrix.{name} }}}}", value) for command in commands for value in values
        ]
    return commands


def _targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"(?m)^([a-z][a-z-]*):(?!=)", makefile))


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.yml")), ids=lambda path: path.name)
def test_the_file_is_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    lines = [line.strip() for line in workflow.read_text(encoding="utf-8").splitlines()]
    uses = [line.removeprefix("- ") for line in lines if line.removeprefix("- ").startswith("uses:")]
    assert [line for line in uses if not PINNED.match(line)] == []


def test_one_action_has_one_commit() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins = set(re.findall(r"uses: (\S+)@(\S+)", text))
    assert len(pins) == len({action for action, _commit in pins}) > 0


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_commands_name_targets_and_files_that_exist(workflow: Path) -> None:
    commands = [command for job in _jobs(workflow).values() for command in _commands(job)]
    named = [target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)]
    files = [file for command in commands for file in re.findall(r"(?:bash|python) (\.ci/\S+)", command)]
    assert named or files
    assert set(named) <= _targets()
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_no_workflow_may_write_but_where_it_publishes(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    writers = {name for name, job in document["jobs"].items() if "permissions" in job}
    assert document["permissions"] == {"contents": "read"}
    assert writers == ({"publish"} if workflow.name == "release.yml" else set())


def test_every_nightly_target_runs_every_night() -> None:
    nightly = GITHUB / "workflows/nightly.yml"
    ran = {
        target for job in _jobs(nightly).values() for command in _commands(job) for target in command.split()
    }
    assert {target for target in _targets() if target.endswith(("-nightly", "-mutants"))} <= ran
    assert "schedule:" in nightly.read_text(encoding="utf-8")


def test_every_python_that_the_project_names_is_tested() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r"Python :: (3\.\d+)", project)
    jobs = _jobs(GITHUB / "workflows/ci.yml")
    matrix = {name: jobs[name]["strategy"]["matrix"]["python"] for name in ("test", "test-macos")}
    assert matrix == {"test": named, "test-macos": named}


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    helped = set(re.findall(r'@echo "make ([a-z-]+)', makefile))
    phony = set(re.findall(r"(?m)^\.PHONY: (.*)$", makefile)[0].split())
    assert helped == phony - {"help"}
    assert phony == _targets()


def test_the_root_stays_small() -> None:
    """Only files of the whole project are in the root."""
    allowed = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "pyproject.toml"}
    pages = {
        path.name for pattern in ("*.md", "*.toml", "*.cfg", "*.ini", "*.txt") for path in ROOT.glob(pattern)
    }
    assert pages | {"LICENSE", "Makefile"} == allowed
