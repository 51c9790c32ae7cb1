"""The examples of docs/examples: each is run as its page states, for a few steps."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
PATIENCE_SECONDS = 400
SOURCES = os.pathsep.join(path for path in sys.path if path)


def run(name: str, *arguments: object) -> str:
    """Run an example as a process of its own and return what it prints."""
    ended = subprocess.run(
        [sys.executable, str(FOLDER / name), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_alone_resumes(tmp_path: Path) -> None:
    first = run("alone.py", tmp_path / "node", 2)
    again = run("alone.py", tmp_path / "node", 1)
    assert re.findall(r"step (\d+)", first) == ["0", "1", "2"]
    assert re.findall(r"step (\d+)  ", again) == ["3"]
    assert first.split()[1] == again.split()[1], "the account is the same"


@pytest.mark.long
def test_two_nodes_get_rollouts_of_each_other(tmp_path: Path) -> None:
    printed = run("two_nodes.py", tmp_path, 3)
    numbers = re.findall(r"(?m)^\w+: (\d+) rollouts of the other node, (\d+) right answers$", printed)
    assert sum(int(groups) for groups, _ in numbers) > 0, printed


@pytest.mark.long
def test_record_rewards_writes_one_row_per_answer(tmp_path: Path) -> None:
    table = tmp_path / "rewards.csv"
    run("record_rewards.py", tmp_path / "node", table, 2)
    with table.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) >= 2 * 4 * 8, "two steps of at least four groups of eight answers"
    assert {row["reward"] for row in rows} <= {"0.0", "1.0"}
    assert {row["family"] for row in rows}


@pytest.mark.long
def test_stop_when_stops_at_the_mark(tmp_path: Path) -> None:
    printed = run("stop_when.py", tmp_path / "node", 0.0, 100)
    step = re.fullmatch(r"step (\d+): mean reward \d\.\d\d over the last 10 rounds\n", printed)
    assert step, printed
    assert 10 <= int(step[1]) < 100, "it stops soon after ten rounds, and long before the most steps"


@pytest.mark.long
def test_compare_temperatures_plots_every_round(tmp_path: Path) -> None:
    printed = run("compare_temperatures.py", tmp_path, 3)
    assert printed == f"plotted 3 rounds in {tmp_path / 'rewards.png'}\n"
    assert (tmp_path / "rewards.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_a_script_without_arguments_prints_what_it_takes(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"python {name} FOLDER" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_page_names_every_example_and_every_example_has_a_test() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    scripts = sorted(path.name for path in FOLDER.glob("*.py"))
    assert len(scripts) >= 5
    assert [name for name in scripts if f"({name})" not in page] == []
    assert [name for name in scripts if f'run("{name}"' not in tests] == []


NOTEBOOK = FOLDER / "two_nodes.ipynb"


def test_the_notebook_is_kept_without_output() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


@pytest.mark.long
def test_the_notebook_joins_two_nodes_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    long, short = "STEPS = 30", "STEPS = 3"
    assert sum(long in cell.source for cell in notebook.cells) == 1
    for cell in notebook.cells:
        cell.source = cell.source.replace(long, short)
    NotebookClient(notebook, timeout=PATIENCE_SECONDS, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    *_, last = [output for output in outputs if "text/plain" in output.get("data", {})]
    first_step, second_step, *missed = map(int, re.findall(r"\d+", last["data"]["text/plain"]))
    assert first_step >= 1
    assert second_step >= 3
    assert missed == [0, 0]
