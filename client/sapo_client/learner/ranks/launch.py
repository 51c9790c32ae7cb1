"""Start of a learner's ranks on one machine; when one rank ends, all do.

The learner's process is rank 0. It starts the others with ``RANK`` and ``WORLD_SIZE`` in their environment,
and each holds the end of a pipe from it: when rank 0 ends in any way, the pipe is closed and they end too.
When another rank ends, a thread of rank 0 sees it and ends rank 0; the node then restarts all of them from
the checkpoint. Ranks meet in a file, and gloo listens on the loopback interface only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.ranks.group import IDLE, RankGroup
from sapo_client.learner.ranks.memory import MicroBatchTooLarge
from sapo_client.learner.settings import OUT_OF_MEMORY, LearnerSettings

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_INTERFACE: Final = "lo0" if sys.platform == "darwin" else "lo"
LOOPBACK: Final = {"GLOO_SOCKET_IFNAME": _INTERFACE, "NCCL_SOCKET_IFNAME": _INTERFACE}
"""Loopback interface: on one machine the ranks must not be reachable from other machines."""

MEETING: Final = "SAPO_RANKS_FILE"
"""Environment variable of a rank: the file in which the ranks find each other."""

_MEETING_FOLDER: Final = ".ranks-"
"""Beginning of the name of the folder with that file; only this user can read it."""

ON_GPU: Final = "SAPO_RANKS_ON_GPU"
"""Environment variable of a rank: 1 if the ranks use GPUs."""

REASON: Final = "SAPO_RANKS_REASON"
"""Environment variable of a rank: the descriptor to which it writes why it ends."""

_OTHERS_SECONDS: Final = 0.5
"""Wait after the end of one rank for the end of another one that caused it."""

_CAUSE_SECONDS: Final = 20.0
"""Wait for the end of another rank after a message to it failed."""

_REASON_BYTES: Final = 500

_ending = threading.Lock()
"""Held by the thread that ends this process, so that its message is the last line in the log."""


class RankLost(Exception):
    """A rank has ended or diverged from the others; all of them must be restarted."""


def number_of_ranks(settings: LearnerSettings) -> int:
    """Return how many processes a learner has.

    Raises:
        SapoError: there are fewer GPUs than ranks, or a setting is not possible with several.
    """
    gpus = torch.cuda.device_count() if uses_gpu(settings) else 0
    size = max(1, gpus) if settings.ranks is None else settings.ranks
    if size > 1 and (settings.base == "nf4" or settings.optimizer != "adamw"):
        raise SapoError(
            "quantised weights and moments cannot be sharded over ranks",
            hint='with learner.ranks above 1, leave out learner.base = "nf4" and learner.optimizer',
            exit_code=ExitCode.CONFIG,
        )
    if gpus and size > gpus:
        raise SapoError(
            f"learner.ranks = {size}, and this machine has {gpus} {'GPUs' if gpus > 1 else 'GPU'}",
            hint=f'set learner.ranks to at most {gpus}, or to "auto"',
            exit_code=ExitCode.CONFIG,
        )
    return size


def start_others(size: int, directory: Path, *, on_gpu: bool) -> RankGroup:
    """Start the other ranks of this process, which becomes rank 0 of ``size``, and join them.

    Args:
        directory: of the learner; it has the file in which the ranks meet. Groups that NCCL and vLLM make
            later meet in it too, so it stays until the next start.
    """
    sys.excepthook = _report
    for earlier in directory.glob(f"{_MEETING_FOLDER}*"):
        shutil.rmtree(earlier, ignore_errors=True)
    meeting = str(Path(tempfile.mkdtemp(prefix=_MEETING_FOLDER, dir=directory)) / "ranks")
    others = [_start(rank, size, meeting, on_gpu=on_gpu) for rank in range(1, size)]
    for one in others:
        threading.Thread(target=_end_with, args=(one, others), daemon=True).start()
    os.environ.update(LOOPBACK)
    return join(meeting, rank=0, size=size, on_gpu=on_gpu)


@dataclass(frozen=True, slots=True)
class OtherRank:
    """A rank that this process has started.

    Attributes:
        rank: its number.
        process: its process.
        reason: the end of a pipe from which its reason to end can be read.
    """

    rank: int
    process: subprocess.Popen[bytes]
    reason: int

    def end(self) -> RankEnd:
        """Return how it ended; it must have ended."""
        with os.fdopen(os.dup(self.reason), "rb") as pipe:
            reason = pipe.read().decode("utf-8", errors="replace").strip()
        return RankEnd(self.rank, self.process.returncode, reason)


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of a rank.

    Attributes:
        rank: its number.
        code: exit status, negative for a signal.
        reason: its own message; empty if it gave none, as when another rank's end caused its own.
    """

    rank: int
    code: int
    reason: str

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out, so that it uses smaller micro-batches after the next start."""
        return self.code == OUT_OF_MEMORY

    def in_words(self) -> str:
        """Return the end in one line."""
        if self.code < 0:
            return f"rank {self.rank} was ended by {signal.Signals(-self.code).name}; all ranks are restarted"
        how = f"ended: {self.reason}" if self.reason else f"exited with status {self.code}"
        return f"rank {self.rank} {how}; all ranks are restarted"


def cause(ends: Sequence[RankEnd]) -> RankEnd:
    """Return the end that caused the others: a signal's, else one for memory, else one with a reason."""
    return min(ends, key=lambda end: (end.code >= 0, not end.is_out_of_memory, not end.reason))


def _start(rank: int, size: int, meeting: str, *, on_gpu: bool) -> OtherRank:
    reason, words = os.pipe()
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        MEETING: meeting,
        ON_GPU: str(int(on_gpu)),
        REASON: str(words),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "sapo_client.learner.ranks"],
        stdin=subprocess.PIPE,
        env={**os.environ, **LOOPBACK, **place},
        pass_fds=[words],
    )
    os.close(words)
    return OtherRank(rank, process, reason)


def join_from(environment: Mapping[str, str]) -> RankGroup:
    """Return the group of a rank that ``start_others`` started, as its environment describes it."""
    rank, size, on_gpu = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", ON_GPU))
    return join(environment[MEETING], rank=rank, size=size, on_gpu=bool(on_gpu))


def join(meeting: str, *, rank: int, size: int, on_gpu: bool) -> RankGroup:
    """Join the ranks of this machine that meet in a file; return once all of them are there."""
    import torch.distributed as dist

    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend_names(on_gpu=on_gpu),
        store=dist.FileStore(meeting, size),  # type: ignore[attr-defined]  # it is documented there
        rank=rank,
        world_size=size,
        timeout=IDLE,
    )
    ranks = RankGroup(rank, size, leader=0, on_host=size, mesh=make_mesh(size, on_gpu=on_gpu))
    ranks.largest(0)  # all ranks have joined
    return ranks


def end_of_process(error: BaseException, rank: int) -> NoReturn:
    """End this rank because of an error, which it prints last, since the node shows the last line."""
    _tell(str(error))
    _ending.acquire()
    _print(f"rank {rank}: {error}")
    os._exit(OUT_OF_MEMORY if isinstance(error, MicroBatchTooLarge) else ExitCode.BUG)


def backend_names(*, on_gpu: bool) -> str:
    """Return the backends of collectives, as torch names them; messages are always on the CPU."""
    return "cpu:gloo,cuda:nccl" if on_gpu else "gloo"


def make_mesh(size: int, *, on_gpu: bool) -> DeviceMesh:
    """Return the mesh of all ranks' devices."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda" if on_gpu else "cpu", (size,))


def uses_gpu(settings: LearnerSettings) -> bool:
    """Whether a learner's ranks use GPUs."""
    return settings.device != "cpu" and torch.cuda.is_available()


def report_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the error that ends a rank other than 0, and report it to rank 0 unless another end caused it."""
    if _is_lost_connection(error):
        threading.Event().wait(
            _CAUSE_SECONDS
        )  # rank 0 ends before that, and so does this one, without a message
    else:
        _tell(f"{kind.__name__}: {error}")
    sys.__excepthook__(kind, error, trace)


def _print(words: str) -> None:
    """Print to the log; not to ``sys.stderr``, which torch replaces while it prints an error."""
    print(words, file=sys.__stderr__, flush=True)


def _tell(reason: str) -> None:
    """Report the reason for this rank's end to rank 0, if rank 0 has started it."""
    if (descriptor := os.environ.get(REASON)) is not None:
        os.write(int(descriptor), " ".join(reason.split())[:_REASON_BYTES].encode())


def _is_lost_connection(error: BaseException) -> bool:
    """Whether a message to another rank failed, as when that one has ended."""
    return isinstance(error, RuntimeError) and "onnection" in str(error)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the error that ends rank 0, unless the end of another rank caused it, which is then reported."""
    with _ending:
        sys.__excepthook__(kind, error, trace)
    if _is_lost_connection(error):
        threading.Event().wait(_CAUSE_SECONDS)
    else:
        end_of_process(RankLost(f"{kind.__name__}: {error}"), 0)


def _end_with(one: OtherRank, others: Sequence[OtherRank]) -> None:
    """Wait until another rank ends, then end this process, and so all of them."""
    one.process.wait()
    threading.Event().wait(_OTHERS_SECONDS)
    _ending.acquire()  # never released: the message below is the last line
    end = cause([each.end() for each in others if each.process.poll() is not None])
    _print(end.in_words())
    os._exit(OUT_OF_MEMORY if end.is_out_of_memory else ExitCode.BUG)
