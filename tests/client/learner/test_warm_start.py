"""A learner that begins as a copy of the template is a process like one that Python starts."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
import trio
from support.file_limit import largest_file
from support.warm_learners import WarmLearners

from sapo_client.learner.process import start_child

PATIENCE_SECONDS = 120


async def test_a_learner_of_the_template_is_one_that_python_starts(tmp_path: Path) -> None:
    """Session, folder, log and limits are the same, and so is what is told of its end."""
    learners = WarmLearners(os.environ, start_child)
    found = []
    with (tmp_path / "learner.log").open("wb") as log, trio.fail_after(PATIENCE_SECONDS):
        for start in (learners.open, start_child):
            with largest_file(2**20):
                ending, killed = await start(log), await start(log)
            child = Path(f"/proc/{ending.pid}")
            facts = (
                os.getsid(ending.pid) == ending.pid,
                (child / "cwd").readlink(),
                (child / "fd/2").readlink(),
                resource.prlimit(ending.pid, resource.RLIMIT_FSIZE)[0],
                ending.poll(),
            )
            assert ending.stdin is not None
            await ending.stdin.aclose()
            killed.kill()
            found.append((facts, await ending.wait(), await killed.wait()))
            assert (ending.poll(), killed.returncode) == (0, -signal.SIGKILL)
    learners.close()
    warm, cold = found
    assert warm == cold == ((True, Path.cwd(), tmp_path / "learner.log", 2**20, None), 0, -signal.SIGKILL)


async def test_a_variable_that_libraries_read_is_a_start_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = WarmLearners(os.environ, start_child)
    monkeypatch.setenv("HF_HUB_OFFLINE", "another")
    with (tmp_path / "learner.log").open("wb") as log, trio.fail_after(PATIENCE_SECONDS):
        process = await learners.open(log)
        assert isinstance(process, trio.Process)
        process.kill()
        await process.wait()
