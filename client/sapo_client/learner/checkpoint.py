"""Checkpoints that are written atomically and verified before they are read.

A checkpoint is a folder with ``state.safetensors`` (weights, moments, random state, demonstrations) and
``meta.json`` (counters, and the state file's digest). It is written under a temporary name, forced to disk
and renamed, so a crash leaves either the old set or the new one. No file is a pickle: loading runs no code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.baseline import Baselines, RunningMean
from sapo_client.learner.demonstrations import DemonstrationBuffer
from sapo_client.learner.settings import DAMAGED
from sapo_client.learner.trainer import Trainer
from sapo_verification.screens.likelihood import LogprobStatistics

KEPT: Final = 2
"""Number of checkpoints: the newest may be damaged by a failing disk, and one more costs little."""

_FORMAT: Final = 1
_ADAM: Final = "adam"
_SUPERVISED_ADAM: Final = "supervised-adam"
_SHOWN: Final = "demonstrations"
_OWN: Final = "own-successes"
_PREFIX: Final = "step-"
_WRITING: Final = ".writing-"


@dataclass(frozen=True, slots=True)
class LearnerCounters:
    """Counters of a learner beside those of its trainer.

    Attributes:
        samples: calls of the sampler so far; each has its own random stream.
    """

    samples: int


class CheckpointStore:
    """Checkpoints of one learner, in one folder.

    Args:
        folder: created by the first ``save``.
        model: name of the model, as in the settings.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._model = model

    def save(self, trainer: Trainer, counters: LearnerCounters, *, kept: int = KEPT) -> Path:
        """Write the trainer's state, remove the oldest checkpoints beyond ``kept``, return the new folder."""
        target = self._folder / f"{_PREFIX}{trainer.steps:010d}"
        writing = self._folder / f"{_WRITING}{target.name}"
        for left_over in self._folder.glob(f"{_WRITING}*"):
            shutil.rmtree(left_over)
        writing.mkdir(parents=True)
        save_file(_tensors(trainer), writing / "state.safetensors")
        meta = {
            "format": _FORMAT,
            "model": self._model,
            "config_digest": config_digest(self._model, trainer),
            "steps": trainer.steps,
            "rollbacks": trainer.rollbacks,
            "samples": counters.samples,
            "yardstick": asdict(trainer.logprob_statistics),  # its name since version 0.1.0
            "baselines": trainer.baselines.to_message(),
            "own_logprob": asdict(trainer.own_logprob),
            "state_digest": _file_digest(writing / "state.safetensors"),
        }
        (writing / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        for path in (*writing.iterdir(), writing):
            _force_to_disk(path)
        shutil.rmtree(target, ignore_errors=True)
        writing.rename(target)
        _force_to_disk(self._folder)
        self._prune(target, kept)
        return target

    def restore(self, trainer: Trainer) -> LearnerCounters | None:
        """Restore the newest intact checkpoint into the trainer; return None if there is none.

        Damaged checkpoints are renamed and passed over.

        Raises:
            SapoError: the checkpoint is of another model.
        """
        for folder in self._newest_first():
            meta = _verified_meta(folder)
            if meta is None:
                folder.rename(folder.with_name(f"{DAMAGED}{folder.name}"))
                continue
            if meta["config_digest"] != config_digest(self._model, trainer):
                raise SapoError(
                    f"the checkpoints in {self._folder} are of {meta['model']!r}, not {self._model!r}",
                    hint="use that --model and learner.lora_rank, another --data-dir, or start over: --fresh",
                    exit_code=ExitCode.DATA,
                )
            _restore_tensors(trainer, load_file(folder / "state.safetensors"))
            trainer.steps, trainer.rollbacks = meta["steps"], meta["rollbacks"]
            trainer.logprob_statistics = LogprobStatistics(**meta.get("yardstick", {}))
            trainer.baselines = Baselines.from_message(meta.get("baselines", {}))
            trainer.own_logprob = RunningMean(**meta.get("own_logprob", {}))
            return LearnerCounters(meta["samples"])
        return None

    def set_aside(self) -> None:
        """Move all checkpoints to a folder beside this one, in place of those set aside before."""
        if not self._folder.exists():
            return
        aside = self._folder.with_name(self._folder.name + "-replaced")
        shutil.rmtree(aside, ignore_errors=True)
        self._folder.rename(aside)

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}*"), reverse=True)

    def _prune(self, newest: Path, kept: int) -> None:
        others = [folder for folder in self._newest_first() if folder != newest]
        for folder in others[kept - 1 :]:
            shutil.rmtree(folder)


def config_digest(model: str, trainer: Trainer) -> str:
    """Digest the model's name and tensor shapes, which a checkpoint must share with a learner."""
    shapes = [(name, list(tensor.shape)) for name, tensor in trainer.policy.model.named_parameters()]
    return hashlib.sha256(json.dumps([model, shapes]).encode()).hexdigest()


def _tensors(trainer: Trainer) -> dict[str, Tensor]:
    """Return all tensors of the state by name, on the CPU; tied weights once, frozen ones not at all."""
    tensors = {f"model/{name}": parameter for name, parameter in _trained(trainer)}
    for prefix, optimizer in _optimizers(trainer):
        for index, state in optimizer.state_dict()["state"].items():
            tensors.update({f"{prefix}/{index}/{key}": value for key, value in state.items()})
    tensors["random/cpu"] = torch.get_rng_state()
    for name, buffer in ((_SHOWN, trainer.demonstrations), (_OWN, trainer.own_successes)):
        tensors[name] = torch.frombuffer(bytearray(buffer.to_bytes()), dtype=torch.uint8)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _trained(trainer: Trainer) -> list[tuple[str, Tensor]]:
    """Return the trained parameters with their names."""
    named = trainer.policy.model.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]


def _restore_tensors(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Write the tensors of ``_tensors`` back into model, optimizers, random state and demonstrations.

    Checkpoints of 0.1.0 have neither demonstrations nor the second optimizer's state: both are empty then.
    """
    with torch.no_grad():
        for name, parameter in _trained(trainer):
            parameter.copy_(tensors[f"model/{name}"])
    for prefix, optimizer in _optimizers(trainer):
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(f"{prefix}/"):
                _, index, key = name.split("/")
                state.setdefault(int(index), {})[key] = tensor
        # the learning rate comes from the settings, not from the checkpoint
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["random/cpu"])
    trainer.demonstrations = _buffer(tensors.get(_SHOWN), trainer.demonstrations.capacity)
    trainer.own_successes = _buffer(tensors.get(_OWN), trainer.own_successes.capacity)


def _buffer(data: Tensor | None, capacity: int) -> DemonstrationBuffer:
    if data is None:
        return DemonstrationBuffer(capacity)
    return DemonstrationBuffer.from_bytes(capacity, data.numpy().tobytes())


def _optimizers(trainer: Trainer) -> list[tuple[str, torch.optim.Optimizer]]:
    """Return the optimizers with the prefixes of their tensors' names."""
    return [(_ADAM, trainer.optimizer), (_SUPERVISED_ADAM, trainer.supervised.optimizer)]


def _verified_meta(folder: Path) -> dict[str, Any] | None:
    """Return a checkpoint's meta data if its files are as they were written, else None."""
    try:
        meta: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        digest = _file_digest(folder / "state.safetensors")
    except (OSError, ValueError, SafetensorError):
        return None
    return meta if meta.get("format") == _FORMAT and meta.get("state_digest") == digest else None


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _force_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
