"""A node under which another release of the package is installed."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.policies import make_policy_folder

from sapo_client import release
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import HealthFacts, assess


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return a function that installs release 99.0 before the one that runs, and returns what is told."""
    if release.RUNNING is None:
        pytest.skip("the package is not installed, and so cannot be upgraded")

    def install() -> str:
        folder = tmp_path / "site/sapo_swarm-99.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sapo-swarm\nVersion: 99.0\n")
        monkeypatch.syspath_prepend(str(folder.parent))
        return f"sapo-swarm {release.RUNNING} runs here, and 99.0 was installed in its place"

    return install


def test_an_upgrade_is_a_finding(upgrade: Callable[[], str]) -> None:
    assert release.replaced() is None
    told = upgrade()
    assert assess(HealthFacts(replaced=release.replaced())) == (
        HealthFinding(
            FindingCode.PACKAGE_REPLACED,
            FindingLevel.WARNING,
            told,
            "restart the node soon: until then a learner that dies is not started again",
        ),
    )


async def test_a_learner_of_another_release_is_not_started(
    upgrade: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might not understand this process, nor this one it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    folder = make_policy_folder(tmp_path / "model")
    learner = Learner(LearnerSettings(model=str(folder), directory=tmp_path / "run", max_new_tokens=8))
    told: list[str] = []

    async def run_until_it_dies() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(learner.run)
            told.append(upgrade())
            assert learner.pid is not None
            os.kill(learner.pid, signal.SIGKILL)

    with pytest.raises(ExceptionGroup) as caught:
        await run_until_it_dies()
    [error] = caught.value.exceptions
    assert isinstance(error, SapoError)
    assert (error.text, error.hint, error.exit_code) == (
        f"the learner cannot be started beside this node: {told[0]}",
        "start the node again: it resumes from its last checkpoint",
        ExitCode.NETWORK,
    )
