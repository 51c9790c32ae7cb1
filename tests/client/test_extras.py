"""A missing extra ends a command with one line and the command that adds it: real processes, real imports."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.nodes import manifest_of
from support.sapo_process import SAPO

from sapo_client.extras import EXTRAS, FAMILIES, Extra
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_verification.suites.catalogue import REASONING_GYM, family
from sapo_verification.tasks.bundled.modules import REQUIRED

BLOCKER = """
import os
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = os.environ.get("BLOCKED", "").split(",")

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)

PathFinder.find_spec = staticmethod(find_spec)
"""
"""Hides modules as if they were not installed, for a process and its children."""

CHAIN = (sys.executable, "-m", "sapo_client.ledger.chain")

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def without(tmp_path: Path, weekdays: Suite) -> "Without":
    """Commands of an installation that lacks some modules."""
    return Without(tmp_path, weekdays)


class Without:
    """Runs commands in processes in which modules cannot be imported, their children included."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(BLOCKER)
        self.manifest = folder / "manifest.json"
        self.manifest.write_text(manifest_to_json(manifest_of(suite)), encoding="utf-8")

    def run(self, modules: tuple[str, ...], *arguments: str, **settings: str) -> tuple[int, list[str]]:
        """The exit code and the lines on standard error of a command."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        path = os.pathsep.join((str(self.folder), os.environ["PYTHONPATH"]))
        done = subprocess.run(
            list(arguments),
            env={
                **kept,
                **settings,
                "PYTHONPATH": path,
                "HOME": str(self.folder),
                "BLOCKED": ",".join(modules),
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stderr.splitlines()


def _says(extra: Extra, missing: str) -> list[str]:
    instead = ", or use learner.backend = transformers" if extra.name == "vllm" else ""
    return [
        f"error: this needs {extra.provides}; not installed: {missing}",
        f"hint: {extra.command}{instead}",
    ]


COMMANDS = {
    "testnet": ("testnet", "up", "--nodes", "2"),
    "lab": ("lab", "judge", "--swarm", "nowhere", "--picture", "curves.png"),
    "parquet": ("export", "parquet", "rollouts.parquet"),
    "families": ("lab", "run", "--families", "zebra_puzzles", "--level", "full", "--out", "nowhere"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_without_its_extra_names_the_installation_command(without: Without, name: str) -> None:
    extra = next(extra for extra in EXTRAS if extra.name == name)
    code, lines = without.run(extra.modules, SAPO, *COMMANDS[name])
    assert (code, lines) == (2, _says(extra, ", ".join(extra.modules)))


@pytest.mark.parametrize("module", ["ethereum_types", "ethereum_rlp", "py_ecc"])
def test_the_chain_command_also_reports_each_missing_part(without: Without, module: str) -> None:
    folder = without.folder / "chain"
    code, lines = without.run((module,), *CHAIN, "--data", str(folder))
    assert (code, lines) == (2, _says(EXTRAS[0], module))
    assert not (folder / "chain.sqlite").exists()


@pytest.mark.parametrize(
    ("name", "setting"),
    [("lora", {"SAPO_LEARNER__LORA_RANK": "4"}), ("vllm", {"SAPO_LEARNER__BACKEND": "vllm"})],
)
def test_a_node_whose_learner_lacks_its_extra_ends_with_the_same_error(
    without: Without, name: str, setting: dict[str, str]
) -> None:
    extra = next(extra for extra in EXTRAS if extra.name == name)
    assert without.run((), SAPO, "keys", "new", "key", "--no-passphrase")[0] == 0
    join = ("join", "--identity", "key", "--manifest", str(without.manifest), "--steps", "1")
    code, lines = without.run(extra.modules, SAPO, *join, "-q", **setting)
    assert (code, lines[-2:]) == (3, _says(extra, ", ".join(extra.modules)))


def test_a_node_whose_swarm_has_a_family_of_an_extra_ends_before_it_joins(without: Without) -> None:
    zebras = family("zebra_puzzles", "full")
    suite = Suite(REASONING_GYM, (zebras,), Digest(bytes(32)))
    without.manifest.write_text(manifest_to_json(manifest_of(suite)), encoding="utf-8")
    assert without.run((), SAPO, "keys", "new", "key", "--no-passphrase")[0] == 0
    join = ("join", "--identity", "key", "--manifest", str(without.manifest), "--steps", "1")
    code, lines = without.run(FAMILIES.modules, SAPO, *join, "-q")
    assert (code, lines[-2:]) == (3, _says(FAMILIES, ", ".join(FAMILIES.modules)))


def test_the_extra_of_families_has_what_their_generators_import() -> None:
    assert FAMILIES.modules == tuple(sorted({module for needed in REQUIRED.values() for module in needed}))


def test_every_extra_is_one_that_the_package_offers() -> None:
    offered = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} <= set(offered)
    assert offered["all"] == [
        "sapo-swarm[testnet,families,lab,parquet,lora,quantised,watch,trackio,tensorboard]"
    ]
