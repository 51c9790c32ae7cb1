"""What a training step costs: the own learner against the peers that people would use instead.

The same work for all: one random model of the bundled policy's shape, the same prompts, eight groups of eight
completions of at most 64 tokens, one optimizer step in float32, one thread. Each contestant runs in a process
of its own, each peer in an environment of its own, made on first use and kept. The reward is the share of
digits at a completion's start: a random model has some of it, so every step trains.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from sapo_client.errors import ExitCode, SapoError

OWN: Final = "sapo"
PEERS: Final = {"trl": "trl==1.16.0"}
"""What is installed into a peer's environment, beside our releases of what both use."""

SHARED: Final = ("torch", "transformers")

GROUPS: Final = 8
COMPLETIONS: Final = 8
NEW_TOKENS: Final = 64
LEARNING_RATE: Final = 1e-4
ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class TrainCost:
    """One contestant; medians over the steps but the first, which warms up.

    Attributes:
        tokens: completion tokens sampled in a step.
        peak_mib: of resident memory, libraries included.
    """

    name: str
    release: str
    cpu_seconds: float
    tokens: float
    peak_mib: float


def train_costs(peers: Sequence[str], steps: int, environments: Path) -> list[TrainCost]:
    """The own learner's cost, then each peer's; takes minutes more where an environment is missing.

    Raises:
        SapoError: a peer is unknown, cannot be installed, or does not run.
    """
    if unknown := sorted(set(peers) - PEERS.keys()):
        raise SapoError(
            f"there is no peer {unknown[0]!r}", hint=f"peers are {', '.join(PEERS)}", exit_code=ExitCode.USAGE
        )
    with tempfile.TemporaryDirectory() as folder:
        work = _work(Path(folder), steps)
        own = _measured(
            OWN, version("sapo-swarm"), [sys.executable, "-m", "sapo_client.bench.train_own"], work
        )
        return [own, *(_peer_cost(peer, work, environments) for peer in peers)]


def _peer_cost(peer: str, work: dict[str, Any], environments: Path) -> TrainCost:
    python = _environment(environments / peer, peer)
    script = Path(__file__).with_name(f"train_{peer}.py")
    return _measured(peer, PEERS[peer].partition("==")[2], [str(python), str(script)], work)


def _work(folder: Path, steps: int) -> dict[str, Any]:
    """A model's folder and so many steps' prompts."""
    from sapo_client.lab.corpus import documents
    from sapo_client.lab.pretrain import new_model
    from sapo_client.learner.policy import BUNDLED, load_policy
    from sapo_verification.catalogue import family

    policy = load_policy(BUNDLED, "cpu")
    new_model(len(policy.tokenizer), policy.end, policy.pad).save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    [chosen] = documents([family("basic_arithmetic", "nano")], GROUPS * steps, seed=0).values()
    return {
        "model": str(folder / "model"),
        "folder": str(folder),
        "prompts": [document.prompt for document in chosen],
        "steps": steps,
        "groups": GROUPS,
        "completions": COMPLETIONS,
        "new_tokens": NEW_TOKENS,
        "learning_rate": LEARNING_RATE,
    }


def _environment(folder: Path, peer: str) -> Path:
    """The interpreter of a peer's environment, made if it is missing."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        same = [f"{name}=={version(name).partition('+')[0]}" for name in SHARED]
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", PEERS[peer], *same])
        ready.touch()
    return python


def _measured(name: str, release: str, command: list[str], work: dict[str, Any]) -> TrainCost:
    said = _run(command, json.dumps(work)).strip().splitlines()[-1]
    found = json.loads(said)
    warm = slice(1, None) if len(found["cpu_seconds"]) > 1 else slice(None)
    return TrainCost(
        name=name,
        release=release,
        cpu_seconds=statistics.median(found["cpu_seconds"][warm]),
        tokens=statistics.median(found["tokens"][warm]),
        peak_mib=found["peak_mib"],
    )


def _run(command: list[str], text: str = "") -> str:
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(  # noqa: S603  # interpreters that we made
        command, input=text, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SapoError(
            f"{' '.join(command[:3])} failed: {last}",
            hint="an environment needs a package index and 3 GB; `--peers` leaves contestants out",
            exit_code=ExitCode.DATA,
        )
    return done.stdout
