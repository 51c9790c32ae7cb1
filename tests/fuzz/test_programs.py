"""The fuzzing program's command line: its end, and its report."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("run.py")


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_prints_and_writes_its_report(tmp_path: Path) -> None:
    done = _run("--count", "20", "--seed", "3", "--json", str(tmp_path / "report.json"))
    report = json.loads(done.stdout)
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == done.stdout
    assert (done.returncode, report["seed"], report["envelopes"], report["clean"]) == (0, 3, 20, True)


def test_a_run_without_an_end_is_refused() -> None:
    done = _run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "--seconds" in done.stderr
