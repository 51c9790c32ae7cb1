"""`torchrun -m sapo_client.learner.ranks.hosts`: ranks on several machines, which torchrun starts.

On the node's machine it gets ``--socket PATH``: there the first rank is the leader, which waits at this Unix
socket for the node's learner process. The node's ``learner.ranks_socket`` names the same path. When the node
goes away or a rank dies, all ranks exit, and torchrun starts them again (``--max-restarts``): they wait for
the node, which tells them its settings and resumes the checkpoint.

torchrun's rendezvous and the ranks' connections are neither authenticated nor encrypted: use a private
network.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.ranks.group import IDLE, RankGroup
from sapo_client.learner.ranks.launch import RankLost, backend_names, end_of_process, make_mesh
from sapo_client.learner.ranks.memory import MicroBatchTooLarge
from sapo_client.learner.ranks.server import Leader, follow
from sapo_client.learner.ranks.serving import quiet_libraries, serve
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message, pack, read_frame

JOIN_SECONDS: Final = 600.0
"""A learner's process waits so long for ranks to listen; torchrun needs a while to start them again."""

OWN_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Variable that lets torchrun make a new store at each start of the ranks.

PyTorch 2.13 otherwise keeps one, without a prefix for each start: ranks connect to ports of ended ranks, or
wait for them without end.
"""

_RETRY_SECONDS: Final = 0.5


def main() -> None:
    """Join the ranks; as the leader serve one node, else follow the leader."""
    parser = argparse.ArgumentParser(prog="torchrun -m sapo_client.learner.ranks.hosts")
    parser.add_argument("--socket", type=Path, help="where the node's learner finds the leader")
    path: Path | None = parser.parse_args().socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet_libraries()
    is_leader = path is not None and os.environ["LOCAL_RANK"] == "0"
    try:
        ranks = join_torchrun(os.environ, is_leader=is_leader)
    except SapoError as error:
        sys.exit(f"error: {error.text}\nhint: {error.hint}")
    if path is not None and is_leader:
        _lead(ranks, path)
    try:
        follow(ranks)
    except (SapoError, MicroBatchTooLarge, RankLost) as error:
        end_of_process(error, ranks.rank)


def join_torchrun(environment: Mapping[str, str], *, is_leader: bool) -> RankGroup:
    """Return the group of a process that torchrun has started.

    Raises:
        SapoError: ranks that start again would meet the addresses of those before them, or not exactly one of
            the machines has the socket.
    """
    import torch.distributed as dist

    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise SapoError(
            "torchrun keeps one store for all starts of the ranks; they would meet addresses of ended ones",
            hint=f"set {OWN_STORE}=1 for torchrun on every machine",
            exit_code=ExitCode.USAGE,
        )
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(environment["LOCAL_RANK"]))
    dist.init_process_group(backend_names(on_gpu=on_gpu), timeout=IDLE)
    place = RankGroup(dist.get_rank(), dist.get_world_size())
    leaders = [rank for rank, leads in enumerate(place.exchange(is_leader)) if leads]
    if len(leaders) != 1:
        raise SapoError(
            f"{len(leaders)} machines have a socket for the node",
            hint="give --socket PATH to torchrun's module on the node's machine, and on no other",
            exit_code=ExitCode.USAGE,
        )
    on_host = int(environment["LOCAL_WORLD_SIZE"])
    return RankGroup(
        place.rank, place.size, leader=leaders[0], on_host=on_host, mesh=make_mesh(place.size, on_gpu=on_gpu)
    )


class SocketCalls:
    """Calls to a leader at a Unix socket, for the node's learner process.

    Args:
        settings: of the learner, with the socket's path.

    Raises:
        SapoError: nobody listens there, or the leader cannot start.
    """

    def __init__(self, settings: LearnerSettings, path: Path) -> None:
        self._stream = _connected(path)
        self._about = self._ask("start", settings.to_message())

    def about(self) -> Message:
        """Return the reply to the start of a learner."""
        return self._about

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call by its name.

        Raises:
            SapoError: the ranks refuse it.
        """
        return self._ask(name, arguments)

    def _ask(self, name: str, arguments: Message) -> Message:
        """Send a request and return its result; without a reply, end this process: the node restarts it."""
        try:
            self._stream.write(pack({"id": 0, "call": name, "arguments": arguments}))
            self._stream.flush()
            reply = read_frame(self._stream)
        except OSError:
            reply = None
        if reply is None:
            print(f"the ranks ended during {name}; torchrun's log says why", file=sys.stderr, flush=True)
            os._exit(ExitCode.BUG)
        if "error" in reply:
            raise SapoError(**reply["error"])
        result: Message = reply["result"]
        return result


def _lead(ranks: RankGroup, path: Path) -> None:
    """Serve the node that connects to the socket, then end, so that torchrun starts all ranks again."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    old = os.umask(0o177)  # for this user only
    listener.bind(str(path))
    os.umask(old)
    listener.listen(1)
    connection, _ = listener.accept()
    listener.close()
    stream = cast(BinaryIO, connection.makefile("rwb"))
    waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(stream, waiting), daemon=True).start()
    try:
        serve(
            waiting, cast(BinaryIO, connection.makefile("wb", buffering=0)), lambda each: Leader(each, ranks)
        )
    except (BrokenPipeError, MicroBatchTooLarge, RankLost) as error:
        end_of_process(error, ranks.rank)


def _read_all(stream: BinaryIO, waiting: queue.SimpleQueue[Message]) -> None:
    """Queue requests; end this rank when the node has gone, even in the middle of a step."""
    while (message := read_frame(stream)) is not None:
        waiting.put(message)
    print("the node has gone; all ranks are restarted and wait for it", file=sys.stderr, flush=True)
    os._exit(ExitCode.BUG)


def _connected(path: Path) -> BinaryIO:
    """Return a connection to the leader; waits until it listens.

    Raises:
        SapoError: it does not.
    """
    limit = time.monotonic() + JOIN_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            if time.monotonic() > limit:
                raise SapoError(
                    f"no ranks listen at {path}: {error}",
                    hint="start them: torchrun ... -m sapo_client.learner.ranks.hosts --socket PATH"
                    " (docs/learner-at-size.md)",
                    exit_code=ExitCode.CONFIG,
                ) from error
            time.sleep(_RETRY_SECONDS)
        else:
            return cast(BinaryIO, connection.makefile("rwb"))


if __name__ == "__main__":
    main()
