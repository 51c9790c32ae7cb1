"""The bundled ReasoningGYM: its items and scores are those of the release that the index installs."""

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from support import item_digests
from support.registered import registered

from sapo_verification.jail.launch import command, environment
from sapo_verification.suites.catalogue import NAMES, family
from sapo_verification.tasks import bundled
from sapo_verification.tasks.bundled.modules import MODULES, REQUIRED
from sapo_verification.tasks.generators import derive
from sapo_verification.tasks.own_generators import OWN_GENERATORS

RECORDED = Path(__file__).parent / "data" / "item_digests.json"

DECLARED = {"bfi", "dateutil", "magiccube", "numpy", "pytz", "sympy", "yaml"}
"""What ``pyproject.toml`` names for the bundled library, as it is imported."""
THEIRS = {"mpmath", "six", "gmpy2"}
"""What these require, and what sympy uses if it is there."""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a jail process is run."""
    interpreter = [command("")[0], "-P", "-s"]
    return subprocess.run(
        [*interpreter, *arguments], env=environment(), capture_output=True, text=True, check=False
    )


def test_items_and_scores_are_those_of_the_installed_release() -> None:
    done = python(item_digests.__file__)
    assert done.stderr == ""
    assert json.loads(done.stdout) == json.loads(RECORDED.read_text(encoding="utf-8"))


CLOCK = re.compile(rb"\b(?:today|now|utcnow|localtime|gmtime)\(|\btime\.time\(")


def test_no_item_depends_on_the_clock() -> None:
    """Two nodes on two sides of midnight must derive the same items."""
    with zipfile.ZipFile(bundled.WHEEL) as wheel:
        modules = {name: f"reasoning_gym/{MODULES[name].replace('.', '/')}.py" for name in NAMES}
        readers = {name for name, file in modules.items() if CLOCK.search(wheel.read(file))}
    assert readers == {"time_intervals"}
    easy = family("time_intervals", "easy")
    starts = [derive(easy, seed).entry["metadata"]["start_time"] for seed in range(4)]
    assert {start.partition(" ")[0] for start in starts} == {bundled.TODAY.isoformat()}


def test_the_table_names_the_module_of_every_family() -> None:
    everything = registered()
    assert {name: everything[name] for name in NAMES if name not in OWN_GENERATORS} == MODULES
    assert set(REQUIRED) <= set(MODULES)


LOADED = """
import json, sys
before = set(sys.modules)
from sapo_verification.tasks.bundled import create_dataset
for name in json.loads(sys.argv[1]):
    create_dataset(name, seed=1, size=1)[0]
print()
new = {name: module for name, module in sys.modules.items() if name not in before}
print(json.dumps({name: getattr(module, "__file__", None) or "" for name, module in new.items()}))
"""


def loaded(*names: str) -> dict[str, str]:
    """Return the modules, and their files, that a process imports to make an item of these families."""
    done = python("-c", LOADED, json.dumps(names))
    assert done.stderr == ""
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_only_what_the_project_declares_is_imported() -> None:
    """All families at once import no other library, such as matplotlib or cellpylib."""
    core = [name for name in MODULES if name not in REQUIRED]
    installed = {name.partition(".")[0] for name, file in loaded(*core).items() if "site-packages" in file}
    assert installed - DECLARED - THEIRS == set()
    assert installed >= DECLARED


@pytest.mark.parametrize("name", REQUIRED)
def test_the_extra_has_what_the_other_families_import(name: str) -> None:
    assert set(REQUIRED[name]) <= set(loaded(name))


def test_a_family_is_imported_without_the_others() -> None:
    modules = loaded("gcd")
    assert {"numpy", "sympy", "bfi", "pytz"}.isdisjoint(modules)
    assert {f"reasoning_gym.{module}" for module in MODULES.values()} & set(modules) == {
        "reasoning_gym.arithmetic.gcd"
    }
    assert Path(modules["reasoning_gym.arithmetic.gcd"]).is_relative_to(bundled.WHEEL)


ALONE = """
import os, numpy, sympy, yaml
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.bundled.modules import MODULES
failed = []
for name in MODULES:
    if (child := os.fork()) == 0:
        create_dataset(name, seed=1, size=1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        failed.append(name)
print(failed)
"""


def test_every_family_can_be_the_first_to_be_imported() -> None:
    done = python("-c", ALONE)
    assert (done.stderr, done.stdout) == ("", "[]\n")


REFUSED = """
import sys
from pathlib import Path
from types import ModuleType
from sapo_protocol.errors import LocalProtocolError
from sapo_verification.tasks import bundled
{before}
try:
    bundled.create_dataset("gcd")
except LocalProtocolError as error:
    print(error)
"""


def test_a_damaged_file_is_not_imported(tmp_path: Path) -> None:
    damaged = tmp_path / bundled.WHEEL.name
    whole = bundled.WHEEL.read_bytes()
    damaged.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    done = python("-c", REFUSED.format(before=f"bundled.WHEEL = Path({str(damaged)!r})"))
    assert done.stdout.startswith(f"{damaged} is damaged (SHA-256 ")
    assert "install sapo-swarm again" in done.stdout


def test_another_release_in_the_same_process_is_refused() -> None:
    done = python("-c", REFUSED.format(before='sys.modules["reasoning_gym"] = ModuleType("reasoning_gym")'))
    assert done.stdout == "this process has imported another ReasoningGYM than the bundled one\n"
