"""Checkpoints that are written atomically and verified before they are read.

A checkpoint is a folder with ``state.safetensors`` (weights, moments, random state, demonstrations) and
``meta.json`` (counters, and the state file's digest). It is written under a temporary name, forced to disk
and renamed. One of the same step is renamed first and removed afterwards: after a crash in between it gets
its name back. So a crash leaves either the old checkpoint or the new one. No file is a pickle: loading runs
no code.

Sharded tensors are written whole, so a checkpoint does not depend on the number of ranks. The leader alone
reads and writes files; it sends the others what it reads, tensor by tensor, and each keeps its shard.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sapo_client.atomic_files import force_to_disk
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner import adapters
from sapo_client.learner.baseline import Baselines, RunningMean
from sapo_client.learner.imitation.demonstrations import DemonstrationBuffer
from sapo_client.learner.loading.identity import model_digest
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.ranks.shard import sharded_like, whole_tensor
from sapo_client.learner.settings import DAMAGED
from sapo_client.learner.trainer import Trainer
from sapo_verification.screens.likelihood import LogprobStatistics

KEPT: Final = 2
"""Number of checkpoints that are kept, for the case that the newest is damaged by a failing disk."""

_FORMAT: Final = 1
_COUNTED: Final = ("format", "steps", "rollbacks", "samples")
_ADAM: Final = "adam"
_SUPERVISED_ADAM: Final = "supervised-adam"
_STUDENT: Final = "student"
_CANDIDATE: Final = "candidate"
_OWN_GRADIENT: Final = "own-gradient"
_SHOWN: Final = "demonstrations"
_OWN: Final = "own-successes"
_MOMENTS: Final = {True: "exp_avg", False: "state1"}
"""Names of the first moments, of PyTorch's AdamW and of that of bitsandbytes."""

_PREFIX: Final = "step-"
_WRITING: Final = ".writing-"
_REPLACED: Final = ".replaced-"

FAILED: Final = "checkpoint_failed"
"""Event and health finding of a checkpoint that could not be written."""


class WeightsNotFinite(Exception):
    """Weights are NaN or infinite; the learner's process ends, and restarts from its last checkpoint."""


@dataclass(frozen=True, slots=True)
class LearnerCounters:
    """Counters of a learner in addition to those of its trainer.

    Attributes:
        samples: calls of the sampler so far; each has its own random stream.
        remote: address of weights and moments that are on a server; None: they are in the checkpoint.
    """

    samples: int
    remote: str | None = None


class CheckpointStore:
    """Checkpoints of one learner, in one folder.

    Args:
        folder: created by the first ``save``.
        model: name of the model, as in the settings.
        ranks: of the learner; all of them make the same calls.

    Attributes:
        has_dropped_moments: whether the restored checkpoint had moments of another optimizer, which the
            present one cannot use, so that it began with empty ones.
    """

    def __init__(self, folder: Path, model: str, ranks: RankGroup = ALONE) -> None:
        self._folder = folder
        self._model = model
        self._ranks = ranks
        self._digest = model_digest(model)
        self.has_dropped_moments = False

    def save(self, trainer: Trainer, counters: LearnerCounters, *, kept: int = KEPT) -> Path:
        """Write the trainer's state, remove the oldest checkpoints beyond ``kept``, return the new folder.

        As many damaged ones are kept, the last ones found, for inspection.

        Raises:
            SapoError: it cannot be written, as on a full disk (transient); the checkpoints before it are
                intact.
            WeightsNotFinite: a resumed learner would compute nothing from them either.
        """
        target = self._folder / f"{_PREFIX}{trainer.steps:010d}"
        tensors = _tensors(trainer, kept=self._ranks.is_leader)
        weights = (each for name, each in tensors.items() if name.startswith("model/"))
        if not all(bool(each.isfinite().all()) for each in weights):
            raise WeightsNotFinite("the weights are NaN or infinite; going on from the last checkpoint")
        why = ""
        if self._ranks.is_leader:
            writing = self._folder / f"{_WRITING}{target.name}"
            try:
                self._write(writing, tensors, trainer, counters)
                self._replace(target, writing)
                self._prune(target, kept)
            except (OSError, SafetensorError) as error:
                shutil.rmtree(writing, ignore_errors=True)  # frees its disk space
                why = str(error)
        if why := self._ranks.broadcast(why):
            raise SapoError(
                f"the checkpoint {target} could not be written: {why}",
                hint=f"free space in {self._folder} if the disk is full; the node will try again",
                exit_code=ExitCode.DATA,
                transient=True,
                finding=FAILED,
            )
        return target

    def _write(
        self, writing: Path, tensors: dict[str, Tensor], trainer: Trainer, counters: LearnerCounters
    ) -> None:
        """Write a checkpoint under its temporary name and force it to disk."""
        self._recover()
        for left_over in self._folder.glob(f"{_WRITING}*"):
            shutil.rmtree(left_over)
        writing.mkdir(parents=True)
        save_file(tensors, writing / "state.safetensors")
        meta = {
            "format": _FORMAT,
            "model": self._model,
            "config_digest": config_digest(self._model, trainer),
            "shapes_digest": config_digest("", trainer),
            "model_digest": self._digest,
            "steps": trainer.steps,
            "rollbacks": trainer.rollbacks,
            "candidate_steps": trainer.supervised.weights.candidate_steps,
            "samples": counters.samples,
            "remote": counters.remote,
            "yardstick": asdict(trainer.logprob_statistics),  # its name since version 0.1.0
            "baselines": trainer.baselines.to_message(),
            "own_logprob": asdict(trainer.own_logprob),
            "state_digest": _file_digest(writing / "state.safetensors"),
        }
        (writing / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        for path in (*writing.iterdir(), writing):
            force_to_disk(path)

    def _replace(self, target: Path, writing: Path) -> None:
        """Rename a written checkpoint to its final name; an existing one is removed afterwards."""
        replaced = target.with_name(f"{_REPLACED}{target.name}")
        if target.exists():
            target.rename(replaced)
        writing.rename(target)
        force_to_disk(self._folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _recover(self) -> None:
        """Rename checkpoints back that were being replaced when the process ended."""
        for replaced in self._folder.glob(f"{_REPLACED}*"):
            target = replaced.with_name(replaced.name.removeprefix(_REPLACED))
            if target.exists():
                shutil.rmtree(replaced)
            else:
                replaced.rename(target)

    def restore(self, trainer: Trainer) -> LearnerCounters | None:
        """Restore the newest intact checkpoint into the trainer; return None if there is none.

        Damaged checkpoints are renamed and skipped.

        Raises:
            SapoError: the checkpoint is of another model, or of a newer release.
        """
        meta, tensors = self._read() if self._ranks.is_leader else (None, {})
        shapes = [[name, list(each.shape), str(each.dtype)] for name, each in tensors.items()]
        meta, shapes = self._ranks.broadcast([meta, shapes])
        if meta is None:
            return None
        self._require_known_format(meta)
        self._require_own(meta, trainer)

        def received(index: int) -> Tensor:
            name, shape, kind = shapes[index]
            empty = torch.empty(shape, dtype=getattr(torch, kind.removeprefix("torch.")))
            return self._ranks.broadcast_tensor(tensors.get(name, empty))

        names = [name for name, *_ in shapes]
        self.has_dropped_moments = _are_of_another_optimizer(names, trainer)
        _restore_tensors(trainer, names, received, with_moments=not self.has_dropped_moments)
        trainer.steps, trainer.rollbacks = meta["steps"], meta["rollbacks"]
        trainer.supervised.weights.candidate_steps = meta.get("candidate_steps", 0)
        trainer.logprob_statistics = LogprobStatistics(**meta.get("yardstick", {}))
        trainer.baselines = Baselines.from_message(meta.get("baselines", {}))
        trainer.own_logprob = RunningMean(**meta.get("own_logprob", {}))
        return LearnerCounters(meta["samples"], meta.get("remote"))

    def _require_known_format(self, meta: dict[str, Any]) -> None:
        """Raise if a newer release wrote the checkpoint, which is not damaged but cannot be read here.

        Raises:
            SapoError: one did.
        """
        if meta["format"] > _FORMAT:
            raise SapoError(
                f"the newest checkpoint in {self._folder} was written by a newer release (its format is"
                f" {meta['format']}, and this release reads {_FORMAT})",
                hint="pip install --upgrade sapo-swarm, use another --data-dir, or start over: --fresh",
                exit_code=ExitCode.DATA,
            )

    def _require_own(self, meta: dict[str, Any], trainer: Trainer) -> None:
        """Raise unless a checkpoint is of this learner's model.

        The model's files are compared, not its path. If all weights are in the checkpoint, the model's name
        is enough; adapters need the base on which they were trained. Checkpoints of 0.1.0 have the name only.

        Raises:
            SapoError: it is of another model.
        """
        has_name = meta["config_digest"] == config_digest(self._model, trainer)
        known = meta.get("model_digest")
        has_files = known is not None and known == self._digest
        has_shapes = meta.get("shapes_digest") == config_digest("", trainer)
        needs_files = known is not None and adapters.has_adapters(trainer.policy.model)
        if (has_files and has_shapes) or (has_name and not needs_files):
            return
        where = f", whose weights are on a server as {meta['remote']}" if meta.get("remote") else ""
        what = f"of {meta['model']!r}{where}, not {self._model!r}"
        if has_files and not where:
            what = f"of {meta['model']!r} with other parameters than it has now"
        elif has_name:
            what = f"adapters on another base than the one that {self._model!r} is now"
        raise SapoError(
            f"the checkpoints in {self._folder} are {what}",
            hint="use that --model, learner.backend and learner.lora_rank, another --data-dir,"
            " or start over: --fresh",
            exit_code=ExitCode.DATA,
        )

    def _read(self) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
        """Return meta data and tensors of the newest intact checkpoint; None and no tensors without one."""
        self._recover()
        for folder in self._newest_first():
            meta = _verified_meta(folder)
            if meta is not None:
                is_newer = meta["format"] > _FORMAT  # its tensors may have other names
                return meta, {} if is_newer else load_file(folder / "state.safetensors")
            damaged = folder.with_name(f"{DAMAGED}{folder.name}")
            shutil.rmtree(damaged, ignore_errors=True)  # a learner may reach one step twice
            folder.rename(damaged)
            damaged.touch()
        return None, {}

    def set_aside(self) -> None:
        """Move all checkpoints to a sibling folder, replacing those set aside before."""
        if not self._folder.exists():
            return
        aside = self._folder.with_name(self._folder.name + "-replaced")
        shutil.rmtree(aside, ignore_errors=True)
        self._folder.rename(aside)

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}*"), reverse=True)

    def _prune(self, newest: Path, kept: int) -> None:
        others = [folder for folder in self._newest_first() if folder != newest]
        damaged = sorted(self._folder.glob(f"{DAMAGED}*"), key=_modified_at, reverse=True)
        for folder in (*others[kept - 1 :], *damaged[kept:]):
            shutil.rmtree(folder)


def _modified_at(folder: Path) -> int:
    """Return a folder's modification time in ns, used for damaged ones, whose step numbers may repeat."""
    return folder.stat().st_mtime_ns


def config_digest(model: str, trainer: Trainer) -> str:
    """Return a digest of the model's name and tensor shapes, which must be equal in checkpoint and
    learner."""
    shapes = [(name, list(tensor.shape)) for name, tensor in trainer.policy.model.named_parameters()]
    return hashlib.sha256(json.dumps([model, shapes]).encode()).hexdigest()


def _tensors(trainer: Trainer, *, kept: bool) -> dict[str, Tensor]:
    """Return all tensors of the state by name, whole, on the CPU; tied weights once, frozen ones not at all.

    Args:
        trainer: of this rank; all ranks call this.
        kept: whether this rank needs them; if not, nothing is returned.
    """
    tensors: dict[str, Tensor] = {f"model/{name}": parameter for name, parameter in _trained(trainer)}
    for prefix, optimizer in _optimizers(trainer):
        for index, state in optimizer.state_dict()["state"].items():
            for key, value in _flat(state).items():
                tensors[f"{prefix}/{index}/{key}"] = torch.as_tensor(value)
    weights = trainer.supervised.weights
    beside = {
        _STUDENT: weights.student,
        _CANDIDATE: weights.candidate,
        _OWN_GRADIENT: trainer.own_gradient.mean,
    }
    for prefix, values in beside.items():
        for index, value in enumerate(values or ()):
            tensors[f"{prefix}/{index}"] = value
    tensors["random/cpu"] = torch.get_rng_state()
    for name, buffer in ((_SHOWN, trainer.demonstrations), (_OWN, trainer.own_successes)):
        tensors[name] = torch.frombuffer(bytearray(buffer.to_bytes()), dtype=torch.uint8)
    whole: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        full = whole_tensor(tensor.detach())  # one at a time, so that other ranks hold no more than one
        if kept:
            value = full.cpu().contiguous()
            address = value.untyped_storage().data_ptr()
            # bitsandbytes' parameters share their tables, which safetensors refuses to write
            whole[name] = value.clone() if address in storages else value
            storages.add(address)
    return whole


def _trained(trainer: Trainer) -> list[tuple[str, Tensor]]:
    """Return the trained parameters with their names."""
    named = trainer.policy.model.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]


@torch.no_grad()
def _restore_tensors(
    trainer: Trainer, names: Sequence[str], received: Callable[[int], Tensor], *, with_moments: bool
) -> None:
    """Write the tensors of ``_tensors`` back into model, optimizers, random state and demonstrations.

    Checkpoints of 0.1.0 have no demonstrations, no student, no state of its optimizer and no own gradient.
    Without a candidate the policy is the student's average, as it always was before there were candidates.

    Args:
        trainer: to restore.
        names: of the tensors.
        received: returns a tensor by its index, whole; all ranks take them one after another.
        with_moments: whether the optimizers' state is restored; if not, it is empty.
    """
    parameters = dict(_trained(trainer))
    optimizers = dict(_optimizers(trainer))
    states: dict[str, dict[int, dict[str, Any]]] = {prefix: {} for prefix in optimizers}
    others: dict[str, Tensor] = {}
    beside: dict[str, dict[int, Tensor]] = {_STUDENT: {}, _CANDIDATE: {}, _OWN_GRADIENT: {}}
    for number, name in enumerate(names):
        kind, _, rest = name.partition("/")
        tensor = received(number)
        if kind == "model":
            parameters[rest].copy_(sharded_like(tensor, parameters[rest]))
        elif kind in states:
            if not with_moments:
                continue
            index, key = rest.split("/")
            parameter = trainer.parameters[int(index)]
            is_moment = tensor.shape == parameter.shape
            shard = sharded_like(tensor, parameter) if is_moment else tensor
            # bitsandbytes counts steps in a plain number, PyTorch in a tensor
            is_plain = key == "step" and not isinstance(optimizers[kind], torch.optim.AdamW)
            _put(states[kind].setdefault(int(index), {}), key, int(tensor) if is_plain else shard)
        elif kind in beside:
            parameter = trainer.parameters[int(rest)]
            beside[kind][int(rest)] = sharded_like(tensor, parameter).to(parameter)
        else:
            others[name] = tensor
    for prefix, optimizer in optimizers.items():
        # the learning rate comes from the settings, not from the checkpoint
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states[prefix], "param_groups": groups})
    torch.set_rng_state(others["random/cpu"])
    weights = trainer.supervised.weights
    student, candidate, own_gradient = ([each[index] for index in sorted(each)] for each in beside.values())
    weights.student, weights.candidate = student or None, candidate or None
    trainer.own_gradient.mean = own_gradient
    trainer.demonstrations = _buffer(others.get(_SHOWN), trainer.demonstrations.capacity)
    trainer.own_successes = _buffer(others.get(_OWN), trainer.own_successes.capacity)


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's state; values of inner dictionaries (bitsandbytes has one) as OUTER.INNER."""
    found: dict[str, Any] = {}
    for key, value in state.items():
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {}
        found.update(inner or {key: value})
    return found


def _put(state: dict[str, Any], key: str, value: Any) -> None:
    """Set a value under a name of ``_flat``."""
    outer, dot, inner = key.partition(".")
    if dot:
        state.setdefault(outer, {})[inner] = value
    else:
        state[key] = value


def _buffer(data: Tensor | None, capacity: int) -> DemonstrationBuffer:
    if data is None:
        return DemonstrationBuffer(capacity)
    return DemonstrationBuffer.from_bytes(capacity, data.numpy().tobytes())


def _optimizers(trainer: Trainer) -> list[tuple[str, torch.optim.Optimizer]]:
    """Return the optimizers with the prefixes of their tensors' names."""
    return [(_ADAM, trainer.optimizer), (_SUPERVISED_ADAM, trainer.supervised.optimizer)]


def _are_of_another_optimizer(names: Sequence[str], trainer: Trainer) -> bool:
    """Whether the moments among a checkpoint's tensors have the names that another optimizer gives them."""
    moments = {_MOMENTS[isinstance(each, torch.optim.AdamW)] for _, each in _optimizers(trainer)}
    found = {name.rpartition("/")[2].rpartition(".")[2] for name in names} & set(_MOMENTS.values())
    return not found <= moments


def _verified_meta(folder: Path) -> dict[str, Any] | None:
    """Return a checkpoint's meta data if its files are as they were written, else None.

    Of a newer release's, only the format is known.
    """
    try:
        meta: Any = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if isinstance(meta, dict) and type(form := meta.get("format")) is int and form > _FORMAT:
            return meta
        digest = _file_digest(folder / "state.safetensors")
    except (OSError, ValueError, SafetensorError):
        return None
    if not _is_whole(meta) or (meta["format"], meta.get("state_digest")) != (_FORMAT, digest):
        return None
    return dict(meta)


def _is_whole(meta: Any) -> bool:
    """Whether meta data have what ``restore`` reads, in the types that ``_write`` gives it."""
    needed = {
        "format": int,
        "model": str,
        "config_digest": str,
        "steps": int,
        "rollbacks": int,
        "samples": int,
    }
    if not isinstance(meta, dict) or any(type(meta.get(name)) is not kind for name, kind in needed.items()):
        return False
    try:
        LogprobStatistics(**meta.get("yardstick", {}))
        Baselines.from_message(meta.get("baselines", {}))
        RunningMean(**meta.get("own_logprob", {}))
    except (TypeError, ValueError, AttributeError, LookupError):
        return False
    return True


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
