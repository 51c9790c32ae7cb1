"""CONTRIBUTING.md: a toy family and a toy message kind, added by its recipes.

The changes lie in ``data/``, each below a hundred lines. A copy of the tree gets them, then runs what the
recipe says, and a program that uses the new part.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("protocol", "verification", "client", "tests", "docs", "pyproject.toml", "CONTRIBUTING.md")
SOURCES = ("protocol", "verification", "client", "tests")
BASES = ("", "client/sapo_client", "verification/sapo_verification")
MAX_LINES = 100
"""Of added lines; a recipe that takes more is the code's fault."""


class Copy:
    """A copy of the tree with some changes, and commands that run in it."""

    def __init__(self, root: Path, *changes: str) -> None:
        self.root = root
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".*")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=ignored)
            else:
                shutil.copyfile(source, root / name)
        for change in changes:
            subprocess.run(["git", "apply", str(DATA / change)], cwd=root, check=True)

    def python(self, *arguments: str) -> str:
        """Run Python on the copy's sources and return what it prints."""
        paths = os.pathsep.join(str(self.root / name) for name in SOURCES)
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
        return result.stdout

    def pytest(self, *arguments: str) -> None:
        """Run some of the copy's tests; at least one must be there, and all must pass."""
        report = self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
        assert re.search(r"\d+ passed", report), report


def _added(change: str) -> list[str]:
    lines = (DATA / change).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("+") and not line.startswith("+++")]


def _files(change: str) -> set[str]:
    return set(re.findall(r"(?m)^\+\+\+ b/(.+)$", (DATA / change).read_text(encoding="utf-8")))


def _recipe(title: str) -> str:
    return PAGE.partition(f"### {title}\n")[2].partition("\n### ")[0]


@pytest.mark.parametrize("change", sorted(path.name for path in DATA.glob("*.diff")))
def test_a_change_stays_below_a_hundred_lines(change: str) -> None:
    assert 0 < len(_added(change)) < MAX_LINES


@pytest.mark.parametrize(
    ("title", "changes"),
    [
        ("A task family", ["toy_family.diff"]),
        ("A message kind", ["toy_message_kind.diff", "toy_message_kind_tests.diff"]),
    ],
)
def test_the_recipe_names_every_file_that_the_change_touches(title: str, changes: list[str]) -> None:
    """By its name, or by the folder that it lies in."""
    recipe = _recipe(title)
    patterns = [
        name.replace("<kind>", "*") for name in re.findall(r"`(?:[\w. -]*/)*([\w.*<>]+\.\w+)`", recipe)
    ]
    patterns += re.findall(r"tests/vectors/(cases_\*\.py)", recipe)
    touched = sorted({file for change in changes for file in _files(change)})
    unnamed = [file for file in touched if not any(fnmatch(Path(file).name, each) for each in patterns)]
    assert [file for file in unnamed if f"`{Path(file).parent}/`" not in recipe] == []


def test_the_files_that_the_page_names_exist() -> None:
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", PAGE) + re.findall(r"\]\(([\w./-]+)\)", PAGE)
    assert len(named) > 20
    assert [name for name in named if not any((ROOT / base / name).exists() for base in BASES)] == []


@pytest.fixture(scope="module")
def make_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Copy]:
    """Return a maker of changed copies."""
    return lambda *changes: Copy(tmp_path_factory.mktemp("copy"), *changes)


FAMILY = """
import json, trio
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.suites.catalogue import check_suite, suite
from sapo_verification.tasks.generators import derive, solution

chosen = suite("easy", ["gcd", "letter_after"])
check_suite(chosen)
item = derive(chosen.families[1], 4711)
answer = solution(chosen.families[1], item)

async def main():
    pool = CheckerPool(chosen, workers=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        texts = [f"<answer>{answer}</answer>".encode(), b"<answer>?</answer>"]
        checked = await pool.check(Task(1, 4711), texts)
        nursery.cancel_scope.cancel()
    print(json.dumps({"prompt": checked.prompt == item.prompt, "rewards": list(checked.rewards)}))

trio.run(main)
"""


def test_a_family_by_its_recipe(make_copy: Callable[..., Copy]) -> None:
    copy = make_copy("toy_family.diff")
    copy.python("-m", "sapo_verification.suites.reference", "docs/reference", "letter_after")
    copy.pytest("tests/verification/suites", "tests/verification/tasks", "-k", "letter_after or current")
    assert json.loads(copy.python("-c", FAMILY)) == {"prompt": True, "rewards": [1.0, 0.0]}


GREETING = """
import json
from pathlib import Path
from support.swarm import EPOCH, Identity, make_manifest, moment
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.greeting import Greeting
from sapo_protocol.topics import certificates_topic, greetings_topic
from sapo_verification.engine import Engine

manifest, alice, bob = make_manifest(), Identity(1), Identity(2)
engine = Engine(
    manifest, ":memory:", own=bob.account, check=None, beacon_of=lambda epoch: None, key=bytes(32)
)
now = moment(manifest)
greeting = Greeting(alice.node, alice.account, EPOCH)
message = seal(Kind.GREETING, manifest.swarm_id, greeting.to_payload(), alice.seed).to_bytes()
topic = greetings_topic(manifest.swarm_id)
seen = [engine.receive(topic, message, now)]
engine.receive(certificates_topic(manifest.swarm_id), alice.certificate(manifest).to_bytes(), now)
seen += [engine.receive(topic, message, now), engine.receive(topic, message[:-1] + b"!", now)]
assert seen[1].admitted == greeting
print(json.dumps([[str(each.verdict), each.rule and each.rule.number] for each in seen]))
"""


def test_a_message_kind_by_its_recipe(make_copy: Callable[..., Copy]) -> None:
    copy = make_copy("toy_message_kind.diff", "toy_message_kind_tests.diff")
    copy.python("tests/vectors/generate.py")
    copy.python("tests/architecture/rules_page.py")
    tests = ["tests/test_rules.py", "tests/vectors", "tests/reference"]
    copy.pytest(*tests, "-k", "not generation")  # that is what the line before did
    outcomes = json.loads(copy.python("-c", GREETING))
    assert outcomes == [["ignore", "R5.1"], ["accept", None], ["reject", "R7.1"]]
