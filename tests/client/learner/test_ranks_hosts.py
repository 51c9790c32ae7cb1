"""Ranks that two torchrun agents start, as on two machines, and the node's learner that finds them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.learner_child import learner_child, other_ranks
from support.policies import make_policy_folder

from sapo_client.learner.ranks.hosts import OWN_STORE
from sapo_client.learner.settings import LearnerSettings
from sapo_client.testnet.processes import free_ports

PROMPTS = ["12 + 7 =\n", "6/8\n", "Monday +3\n"]


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder), directory=tmp_path / "run", device="cpu", max_new_tokens=8, learning_rate=1e-3
    )


@contextmanager
def agent(endpoint: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run torchrun on one machine, with one rank; it ends with its ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--max-restarts", "20", "--monitor-interval", "0.2", "--local-addr", "127.0.0.1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-id", "learner", "--rdzv-endpoint", endpoint]
    command += ["-m", "sapo_client.learner.ranks.hosts", *arguments]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    environment[OWN_STORE] = "1"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_store_that_outlives_the_ranks_is_refused(tmp_path: Path) -> None:
    """Ranks that start again would find the addresses of ended ones there."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--standalone"]
    command += ["-m", "sapo_client.learner.ranks.hosts", "--socket", str(tmp_path / "ranks.sock")]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths, OWN_STORE: "0", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "error: torchrun keeps one store for all starts of the ranks" in done.stderr
    assert f"hint: set {OWN_STORE}=1 for torchrun on every machine" in done.stderr


@pytest.mark.e2e
@pytest.mark.long
def test_two_machines_train_and_come_back_after_a_kill(settings: LearnerSettings, tmp_path: Path) -> None:
    groups = [
        {"prompt": prompt, "completions": [b"1", b"22", b"333", b"4"], "rewards": [1.0, 0.0, 0.0, 1.0]}
        | {"external": False, "handle": None, "family": 0}
        for prompt in PROMPTS
    ]
    alone = replace(settings, directory=tmp_path / "alone")
    with learner_child(alone) as child:
        expected = child.call("train", groups=groups)
        after = child.call("train", groups=groups)

    path = tmp_path / "ranks.sock"
    [port] = free_ports(1)
    endpoint = f"127.0.0.1:{port}"
    there = replace(settings, ranks_socket=str(path))
    with ExitStack() as machines:
        first = agent(endpoint, tmp_path / "first.log", "--socket", str(path))
        second = agent(endpoint, tmp_path / "second.log")
        machines.enter_context(first)
        other = machines.enter_context(second)
        with learner_child(there) as child:
            assert child.about["ranks"] == 2
            report = child.call("train", groups=groups)
            assert report["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-5)
            child.call("checkpoint")
            (rank,) = other_ranks(other.pid)
            os.kill(rank, signal.SIGKILL)
            with pytest.raises(EOFError):
                child.call("evaluate", prompts=PROMPTS)
        with learner_child(there) as child:  # as the node restarts it
            assert child.about["step"] == 1
            report = child.call("train", groups=groups)
            assert report["gradient_norm"] == pytest.approx(after["gradient_norm"], rel=1e-4)
    log = (settings.directory / "learner.log").read_text(encoding="utf-8")
    assert "the ranks ended during evaluate; torchrun's log says why" in log
