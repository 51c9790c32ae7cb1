"""A crash of a test worker fails one test, not the whole run."""

import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"

CRASH = """
import ctypes

def test_before(): pass
def test_crash(): ctypes.string_at(0)
def test_after(): pass
"""


def test_all_tests_but_the_one_that_crashed_its_worker_are_run(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_crash.py").write_text(CRASH)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    options = ["--numprocesses", "1", "--dist", "loadfile", "-p", "no:cacheprovider", "-p", "no:faulthandler"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert "1 failed, 3 passed" in run.stdout.splitlines()[-1], run.stdout
