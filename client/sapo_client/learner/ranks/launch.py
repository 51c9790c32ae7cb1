"""Start of a learner's ranks on one machine, and their end: when one ends, all do.

The learner's process is rank 0. It starts the others with ``RANK`` and ``WORLD_SIZE`` in their environment,
and each holds the end of a pipe from it: when rank 0 ends, however it does, the pipe ends and so do they.
When another rank ends, a thread of rank 0 sees it and ends rank 0; the node then restarts all of them from
the checkpoint. Ranks meet in a file, and gloo listens on the loopback interface only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
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
"""On one machine nothing of the group can be reached from another one."""

MEETING: Final = "SAPO_RANKS_FILE"
"""Environment variable of a rank: the file in which the ranks find each other."""

ON_GPU: Final = "SAPO_RANKS_ON_GPU"
"""Environment variable of a rank: 1 if the ranks use GPUs."""

_LAST_WORDS_SECONDS: Final = 2.0


class RankLost(Exception):
    """A rank has ended, or did not do what the others did; all of them must be restarted."""


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


def start_others(size: int, *, on_gpu: bool) -> RankGroup:
    """Start the other ranks of this process, which becomes rank 0 of ``size``, and join them."""
    sys.excepthook = _report_and_wait
    folder = tempfile.mkdtemp(prefix="sapo-ranks-")  # readable by this user only
    meeting = str(Path(folder) / "ranks")
    for rank in range(1, size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), MEETING: meeting, ON_GPU: str(int(on_gpu))}
        process = subprocess.Popen(
            [sys.executable, "-m", "sapo_client.learner.ranks"],
            stdin=subprocess.PIPE,
            env={**os.environ, **LOOPBACK, **place},
        )
        threading.Thread(target=_end_with, args=(rank, process), daemon=True).start()
    os.environ.update(LOOPBACK)
    group = join(meeting, rank=0, size=size, on_gpu=on_gpu)
    Path(meeting).unlink(missing_ok=True)
    Path(folder).rmdir()
    return group


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
    ranks.largest(0)  # all are there: nobody needs the file any more
    return ranks


def end_of_process(error: BaseException, rank: int) -> NoReturn:
    """End this rank because of an error; what it prints last is what the node shows."""
    print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
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


def _report_and_wait(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error; if it follows from the end of another rank, let that be the last that is printed."""
    sys.__excepthook__(kind, error, trace)
    threading.Event().wait(_LAST_WORDS_SECONDS)


def _end_with(rank: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until another rank ends, then end this process, and so all of them."""
    code = process.wait()
    if code != OUT_OF_MEMORY:  # which has said why
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        print(f"rank {rank} {how}; all ranks are restarted", file=sys.stderr, flush=True)
    os._exit(OUT_OF_MEMORY if code == OUT_OF_MEMORY else ExitCode.BUG)
