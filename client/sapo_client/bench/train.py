"""What a training step costs: the own learner against the peers that people would use instead.

The same work for all: one random model of the bundled policy's shape, the same prompts, eight groups of eight
completions of at most 64 tokens, one optimizer step, one thread. Each contestant runs in a process
of its own, each peer in an environment of its own, made on first use and kept. They take turns, round after
round, so that a machine's mood meets all alike. The reward counts a completion's digits: a random model
writes some, never equally many in a whole group, so that every group has an advantage. Fewer may be asked
for, by the same reward for a whole group: the own learner leaves such groups out, the peers compute them.

What cannot be made equal: each draws its own random numbers, so lengths differ a little (tokens are told),
and genrl trains its completions' text tokenized again, without the end token.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.pretrain import SHAPES

OWN: Final = "sapo"
BACKENDS: Final = {"own": "sapo_client", "generate": "transformers", "vllm": "vllm"}
"""How the own learner may sample, and the package that does it; what is not installed is left out."""

PEERS: Final = {"trl": "trl==1.16.0", "genrl": "gensyn-genrl==0.3.0"}
"""What is installed into a peer's environment, beside our releases of what both use."""

SHARED: Final = ("torch", "transformers")

GROUPS: Final = 8
COMPLETIONS: Final = 8
NEW_TOKENS: Final = 64
LEARNING_RATE: Final = 1e-4
ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class TrainCost:
    """One contestant; medians over the steps of all rounds, each round's first left out, which warms up.

    Attributes:
        seconds: of a step; processor seconds, on a GPU those of a clock.
        sampling_seconds: the part of it until all completions are there as text; weights are pushed in it.
        tokens: completion tokens sampled in a step.
        peak_mib: of resident memory, libraries included.
    """

    name: str
    release: str
    seconds: float
    sampling_seconds: float
    tokens: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class _Contestant:
    name: str
    release: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """What everybody does.

    Attributes:
        steps: of a round.
        rounds: how often each contestant has its turn.
        informative: how many of a step's groups have an advantage.
        bfloat16: matrix products in bfloat16, TRL's default; genrl keeps its weights in it, too.
        device: cpu or cuda, where the own learner computes in bfloat16 by default.
        shape: of the random model, a name in ``pretrain.SHAPES``.
    """

    steps: int = 24
    rounds: int = 3
    informative: int = GROUPS
    bfloat16: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    shape: str = "bundled"

    @property
    def is_for_peers(self) -> bool:
        """Whether the peers can do the same."""
        return (self.device, self.shape) == ("cpu", "bundled")


def train_costs(
    peers: Sequence[str], load: Load, environments: Path, tell: Callable[[str], None]
) -> list[TrainCost]:
    """What the own learner costs with each backend, then each peer; minutes more if one must be installed.

    Args:
        tell: hears of what takes long.

    Raises:
        SapoError: a peer is unknown, cannot be installed, or does not run; the shape is unknown.
    """
    if unknown := sorted(set(peers) - PEERS.keys()):
        raise SapoError(
            f"there is no peer {unknown[0]!r}", hint=f"peers are {', '.join(PEERS)}", exit_code=ExitCode.USAGE
        )
    if load.shape not in SHAPES:
        raise SapoError(
            f"there is no shape {load.shape!r}",
            hint=f"shapes are {', '.join(SHAPES)}",
            exit_code=ExitCode.USAGE,
        )
    if peers and not load.is_for_peers:
        raise SapoError(
            "peers are measured on a CPU with the bundled policy's shape alone",
            hint="leave --peers out, or --device and --shape",
            exit_code=ExitCode.USAGE,
        )
    contestants = [*_own(), *(_peer(peer, environments, tell) for peer in peers)]
    with tempfile.TemporaryDirectory() as folder:
        work = json.dumps(_work(Path(folder), load))
        turns = [[_measured(each, work) for each in contestants] for _ in range(load.rounds)]
    return [
        _cost(each, list(found)) for each, found in zip(contestants, zip(*turns, strict=True), strict=True)
    ]


def _own() -> list[_Contestant]:
    """The own learner, once for each backend that is installed."""
    script = (sys.executable, "-m", "sapo_client.bench.train_own")
    return [
        _Contestant(f"{OWN}, {backend}", version("sapo-swarm"), (*script, backend))
        for backend, package in BACKENDS.items()
        if find_spec(package)
    ]


def _peer(peer: str, environments: Path, tell: Callable[[str], None]) -> _Contestant:
    python = _environment(environments / peer, peer, tell)
    script = Path(__file__).with_name(f"train_{peer}.py")
    return _Contestant(peer, PEERS[peer].partition("==")[2], (str(python), str(script)))


def _work(folder: Path, load: Load) -> dict[str, Any]:
    """A model's folder and every step's prompts."""
    from sapo_client.lab.corpus import documents
    from sapo_client.lab.pretrain import new_model
    from sapo_client.learner.policy import BUNDLED, load_policy
    from sapo_verification.suites.catalogue import family

    policy = load_policy(BUNDLED, "cpu")
    new_model(len(policy.tokenizer), policy.end, policy.pad, load.shape).save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    [chosen] = documents([family("basic_arithmetic", "nano")], GROUPS * load.steps, seed=0).values()
    return {
        "model": str(folder / "model"),
        "folder": str(folder),
        "prompts": [document.prompt for document in chosen],
        "steps": load.steps,
        "groups": GROUPS,
        "completions": COMPLETIONS,
        "informative": load.informative,
        "bfloat16": load.bfloat16,
        "device": load.device,
        "new_tokens": NEW_TOKENS,
        "learning_rate": LEARNING_RATE,
    }


def _environment(folder: Path, peer: str, tell: Callable[[str], None]) -> Path:
    """The interpreter of a peer's environment, made if it is missing."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        tell(f"installing {PEERS[peer]} into {folder}, which takes minutes, once")
        same = [f"{name}=={version(name).partition('+')[0]}" for name in SHARED]
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", PEERS[peer], *same])
        ready.touch()
    return python


def _measured(contestant: _Contestant, work: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run(contestant.command, work).strip().splitlines()[-1])
    return found


def _cost(contestant: _Contestant, turns: Sequence[dict[str, Any]]) -> TrainCost:
    def median(figure: str) -> float:
        return float(statistics.median(value for turn in turns for value in turn[figure][1:] or turn[figure]))

    return TrainCost(
        name=contestant.name,
        release=contestant.release,
        seconds=median("seconds"),
        sampling_seconds=median("sampling_seconds"),
        tokens=median("tokens"),
        peak_mib=max(turn["peak_mib"] for turn in turns),
    )


def _run(command: Sequence[str], text: str = "") -> str:
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
