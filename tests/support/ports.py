"""Free ports for programs that a test starts, which cannot choose one themselves."""

from contextlib import ExitStack
from socket import socket


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now, all different."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def free_port() -> int:
    """Return one such port."""
    return free_ports(1)[0]
