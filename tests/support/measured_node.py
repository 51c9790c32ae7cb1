"""A transport in a separate process that reports its peak memory.

    python -m support.measured_node [BOOTSTRAP]

It prints its address, and for each line that it reads the most address space and the most memory that the
process has had, in bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
from sapo_protocol.errors import Verdict

TOPIC = "sapo/1/test/rollouts"


def max_bytes(name: str) -> int:
    """Return a figure of this process, `VmPeak` or `VmHWM`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _raise(error: Exception) -> None:
    raise error


async def serve(bootstrap: tuple[str, ...]) -> None:
    """Run the node until its input ends."""
    dial = DialLimits(first_backoff_seconds=0.05, tick_seconds=0.05)
    transport = Libp2pTransport(bytes([1]) * 32, on_bug=_raise, bootstrap=bootstrap, dial=dial)
    transport.subscribe(TOPIC, lambda _data, _forwarder: Verdict.ACCEPT)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        print(transport.addresses[0], flush=True)
        async for _line in trio.wrap_file(sys.stdin):
            print(max_bytes("VmPeak"), max_bytes("VmHWM"), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve, tuple(sys.argv[1:]))
