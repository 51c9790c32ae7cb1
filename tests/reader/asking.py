"""The JavaScript reader as a process that answers questions, one line of JSON each."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

MISSING = (
    "no Node.js here"
    if shutil.which("node") is None
    else "its packages are not installed: run make tests/reader/node_modules/.installed"
    if not (HERE / "node_modules" / "@noble").is_dir()
    else None
)
"""Why the reader cannot run, or None."""


class Reader:
    """The running process. Questions and answers are those of ``serve.mjs``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, name: str, **question: Any) -> Any:
        """Return the answer to one question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": name, **question}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"the reader ended at {name}: its error output says why")
        return json.loads(line)


@contextmanager
def started_reader() -> Iterator[Reader]:
    """Yield a running reader, and end it afterwards."""
    command = ["node", str(HERE / "serve.mjs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        yield Reader(process)
        assert process.stdin is not None
        process.stdin.close()


def vectors_run() -> dict[str, Any]:
    """Return how many vectors of each list the reader read, and how many differ, after running all of them.

    Raises:
        RuntimeError: some differ; the text shows the first of them.
    """
    command = ["node", str(HERE / "vectors.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr or done.stdout)
    report: dict[str, Any] = json.loads(done.stdout)
    return report
