"""Source files through which a rollout passes from the wire to the pool, found by tracing one.

The last part is watched: a node of the in-memory network gets a rollout, and every own file with a function
that runs below ``Intake.process`` counts, until the pool has it. The transport's files work in tasks of their
own before that; ``TRANSPORT`` lists those through which each message passes (``p2p/stream_guard.py`` wraps a
stream when it is opened, and runs for no message).
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Final

import trio
from architecture.figures import PACKAGES, ROOT
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import Identity, make_manifest

from sapo_client.swarm.simulated.memory import MemoryHub

_SWARM: Final = "client/sapo_client/swarm"
TRANSPORT: Final = (
    f"{_SWARM}/p2p/muxer.py",
    f"{_SWARM}/p2p/gossip.py",
    f"{_SWARM}/p2p/frames.py",
    f"{_SWARM}/rate_limit.py",
)
_FIRST: Final = ("client/sapo_client/swarm/intake.py", "process")
_LAST: Final = ("verification/sapo_verification/sampling/pool.py", "offer")


class Watch:
    """Profiler's hook that lists the own files between two functions."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._depth = 0
        self._is_over = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note one call or return."""
        if event not in ("call", "return") or self._is_over:
            return
        file, name = frame.f_code.co_filename.removeprefix(f"{ROOT}/"), frame.f_code.co_name
        if event == "return":
            self._is_over = (file, name) == _LAST
            self._depth -= self._depth > 0
        elif self._depth or ((file, name) == _FIRST and "rollouts" in frame.f_locals["topic"]):
            self._depth += 1
            if file.startswith(tuple(PACKAGES.values())) and file not in self.files:
                self.files.append(file)


async def files_to_pool(folder: Path) -> tuple[str, ...]:
    """Return the files, in the order in which the rollout reaches them; needs trio's mock clock.

    Args:
        folder: an empty folder for two nodes' databases.
    """
    hub, manifest, watch = MemoryHub(), make_manifest(), Watch()
    sender, receiver = (GossipHarness(hub, Identity(n), manifest, folder / str(n)) for n in (1, 2))
    async with trio.open_nursery() as nursery:
        for harness in (sender, receiver):
            await nursery.start(harness.transport.run)
            nursery.start_soon(harness.run)
        await receiver.transport.connect(sender.address)
        await until(lambda: sender.knows(receiver) and receiver.knows(sender))
        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            await sender.publish(slot=0)
            await until(lambda: bool(receiver.pooled()))
        finally:
            sys.setprofile(before)
        nursery.cancel_scope.cancel()
    return (*TRANSPORT, *watch.files)
