"""Cost of a training step: our learner compared with other training libraries (peers).

All do the same work: one random model of the bundled policy's shape, the same prompts, eight groups of eight
completions of at most 64 tokens, one optimizer step, one thread. Each contestant runs in its own process,
each peer in its own environment, which is made on first use and kept. They take turns, round after round, so
that changes of the machine's load affect all of them. The reward counts a completion's digits: a random model
writes some, never equally many in a whole group, so that every group has an advantage. For fewer groups with
an advantage, the others get one reward for all completions; our learner skips them, the peers compute them.

Differences that remain: each samples with its own random numbers, so lengths differ a little (the number of
tokens is reported), and genrl trains its completions' text tokenized again, without the end token.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from sapo_client.bench.failure import failure_line
from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.pretrain import SHAPES
from sapo_client.learner.cpu.bfloat16 import has_bfloat16

OWN: Final = "sapo"
BACKENDS: Final = {"own": "sapo-swarm", "generate": "transformers", "vllm": "vllm"}
"""Our learner's sampling backends with the package that each needs; those not installed are left out."""

INSTALLATION_HINT: Final = "an environment needs a package index and 3 GB; `--peers` leaves contestants out"
PEER_HINT: Final = "`-v` shows its whole output; `--peers` leaves contestants out"
OWN_HINT: Final = "`-v` shows its whole output"

PEERS: Final = {"trl": "trl==1.16.0", "genrl": "gensyn-genrl==0.3.0"}
"""Requirement of each peer, installed into its environment together with our releases of ``SHARED``."""

VLLM_PEERS: Final = {"trl": "trl[vllm]==1.16.0"}
"""The same on a GPU, where TRL samples with vLLM in its own process (colocated)."""

SHARED: Final = ("torch", "transformers")

GROUPS: Final = 8
COMPLETIONS: Final = 8
NEW_TOKENS: Final = 64
LEARNING_RATE: Final = 1e-4
_LOG: Final = logging.getLogger(__name__)

ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class TrainCost:
    """Cost of one contestant: medians over all steps but the first of each round, which warms up.

    Attributes:
        name: name of the contestant.
        release: version of its package.
        seconds: processor seconds of a step; on a GPU wall time.
        sampling_seconds: its part until all completions are decoded to text, including updates of the
            sampler's weights.
        tokens: number of completion tokens sampled in a step.
        peak_mib: peak of resident memory, including libraries.
    """

    name: str
    release: str
    seconds: float
    sampling_seconds: float
    tokens: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class _Contestant:
    """Program to measure, which reads its work from standard input, and a hint for errors."""

    name: str
    release: str
    command: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True)
class Load:
    """Work of every contestant.

    Attributes:
        steps: number of steps of a round.
        rounds: number of turns of each contestant.
        informative: number of a step's groups that have an advantage.
        bfloat16: matrix products in bfloat16, TRL's default; genrl also keeps its weights in bfloat16. None:
            our learner's default, bfloat16 where the hardware has it.
        device: cpu or cuda.
        shape: shape of the random model, a name in ``pretrain.SHAPES``.
        lora_rank: rank of adapters; 0 trains all parameters.
        trains: whether to train, not only to sample.
        memory_gib: limit of our learner's memory on the device, including the model; None: the free memory.
    """

    steps: int = 24
    rounds: int = 3
    informative: int = GROUPS
    bfloat16: bool | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    shape: str = "bundled"
    lora_rank: int = 0
    trains: bool = True
    memory_gib: float | None = None

    @property
    def peers(self) -> dict[str, str]:
        """Requirements of the peers that can do the same work."""
        if self.lora_rank or not self.trains:
            return {}
        if self.device == "cuda":
            return VLLM_PEERS if self.memory_gib is None else {}
        return PEERS if self.shape == "bundled" else {}

    @property
    def products(self) -> bool | None:
        """Whether products are in bfloat16; None: in the GPU's own 16-bit type."""
        return has_bfloat16() if self.bfloat16 is None and self.device == "cpu" else self.bfloat16


def train_costs(
    peers: Sequence[str], load: Load, environments: Path, notify: Callable[[str], None]
) -> list[TrainCost]:
    """Return the cost of our learner with each backend, then of each peer.

    Args:
        peers: names in ``PEERS``; installing one takes minutes, once.
        load: the work.
        environments: folder of the peers' environments.
        notify: called with a text before something that takes long.

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
    if unable := sorted(set(peers) - load.peers.keys()):
        raise SapoError(
            f"{unable[0]} does not do this work: on a CPU peers have the bundled policy's shape alone, on a"
            " GPU there is trl alone, without a limit of memory, and none trains adapters",
            hint="leave --peers out, or --device, --shape, --lora-rank and --memory-gib",
            exit_code=ExitCode.USAGE,
        )
    if load.device == "cpu":
        notify(f"matrix products in {'bfloat16' if load.products else 'float32'}")
    others = [_peer(peer, load.peers[peer], environments, notify) for peer in peers]
    contestants = [*_own(load, notify), *others]
    with tempfile.TemporaryDirectory() as folder:
        work = json.dumps(_work(Path(folder), load))
        turns = [[_measured(each, work) for each in contestants] for _ in range(load.rounds)]
    return [
        _cost(each, list(found)) for each, found in zip(contestants, zip(*turns, strict=True), strict=True)
    ]


def releases() -> dict[str, str]:
    """Return the releases of the installed packages of ``BACKENDS``, by package."""
    found = {}
    for package in BACKENDS.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def own_backends(load: Load, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the backends whose package is installed, each with the reason to leave it out, or an empty text.

    Args:
        load: the work.
        installed: releases by package, as ``releases`` returns them.
    """
    return {
        backend: _reason(backend, load, installed[package])
        for backend, package in BACKENDS.items()
        if package in installed
    }


def _reason(backend: str, load: Load, release: str) -> str:
    """Return why our learner with a backend cannot do this work; empty if it can."""
    if backend == "own":
        return "the own sampler takes no adapters" if load.lora_rank else ""
    if backend != "vllm":
        return ""
    if load.memory_gib is not None:
        return "its engine has a copy of the model of its own, which --memory-gib does not count"
    # a build supports one device, which vLLM itself reads from the same part of its version
    built_for = "cpu" if "cpu" in release.partition("+")[2] else "cuda"
    return "" if built_for == load.device else f"vLLM {release} is not built for --device {load.device}"


def _own(load: Load, notify: Callable[[str], None]) -> list[_Contestant]:
    """Return our learner, once for each backend that can do the work; ``notify`` is told about the others."""
    script = (sys.executable, "-m", "sapo_client.bench.train_own")
    found = own_backends(load, releases())
    for backend, reason in found.items():
        if reason:
            notify(f"{OWN}, {backend} is left out: {reason}")
    return [
        _Contestant(f"{OWN}, {backend}", version("sapo-swarm"), (*script, backend), OWN_HINT)
        for backend, reason in found.items()
        if not reason
    ]


def _peer(peer: str, requirement: str, environments: Path, notify: Callable[[str], None]) -> _Contestant:
    name = peer if requirement == PEERS[peer] else f"{peer}-vllm"
    python = _environment(environments / name, requirement, notify)
    script = Path(__file__).with_name(f"train_{peer}.py")
    return _Contestant(peer, requirement.partition("==")[2], (str(python), str(script)), PEER_HINT)


def _work(folder: Path, load: Load) -> dict[str, Any]:
    """Save a random model and return the work as JSON values: its folder, every step's prompts, the sizes."""
    from sapo_client.lab.corpus import documents
    from sapo_client.lab.pretrain import new_model
    from sapo_client.learner.policy import BUNDLED, load_policy
    from sapo_verification.suites.catalogue import family

    policy = load_policy(BUNDLED, "cpu")
    half = load.device == "cuda" and bool(load.lora_rank)  # as the frozen base is there
    model = new_model(len(policy.tokenizer), policy.end, policy.pad, load.shape, half=half)
    model.save_pretrained(folder / "model")
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
        "bfloat16": load.products,
        "device": load.device,
        "lora_rank": load.lora_rank,
        "trains": load.trains,
        "memory_gib": load.memory_gib,
        "new_tokens": NEW_TOKENS,
        "learning_rate": LEARNING_RATE,
    }


def _environment(folder: Path, requirement: str, notify: Callable[[str], None]) -> Path:
    """Return the interpreter of a peer's environment, which is made if it is missing."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        notify(f"installing {requirement} into {folder}, which takes minutes, once")
        # vLLM pins PyTorch and transformers itself
        same = [] if "vllm" in requirement else [f"{name}=={_public(version(name))}" for name in SHARED]
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], INSTALLATION_HINT)
        _run([str(python), "-m", "pip", "install", "--quiet", requirement, *same], INSTALLATION_HINT)
        ready.touch()
    return python


def _public(release: str) -> str:
    """Return a release without its local part, such as +cpu."""
    return release.partition("+")[0]


def _measured(contestant: _Contestant, work: str) -> dict[str, Any]:
    """Run a contestant and return the figures in the last line of its output."""
    output = _run(contestant.command, contestant.hint, work)
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def _cost(contestant: _Contestant, turns: Sequence[dict[str, Any]]) -> TrainCost:
    """Return the medians over a contestant's turns."""

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


def _run(command: Sequence[str], hint: str, text: str = "") -> str:
    """Run a command with ``text`` as its standard input and return its standard output.

    Args:
        command: program and arguments, of which an error shows the first four.
        hint: remedy if it fails.
        text: its standard input.

    Raises:
        SapoError: it failed.
    """
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(  # noqa: S603  # our own interpreter, or one that we installed
        command, input=text, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        shown = " ".join(command[:4])
        _LOG.info("%s: %s", shown, done.stderr)
        raise SapoError(
            f"{shown} failed: {failure_line(done.stderr)}",
            hint=hint,
            exit_code=ExitCode.DATA,
        )
    return done.stdout
