"""A real node with a page, for all tests of this folder: it trains in a process, and is sent hostile text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.page_swarm import READY

from sapo_client.paths import DataDir


@pytest.fixture(scope="module")
def page_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    """Return the data directory of the node of ``page_swarm``, which runs.

    It ends with the module: tests of the jail count the processes below their own one.
    """
    folder = tmp_path_factory.mktemp("page")
    argv = [sys.executable, "-m", "support.page_swarm", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            assert READY in map(str.strip, process.stdout)
            yield DataDir(folder / "data")
        finally:
            process.terminate()
