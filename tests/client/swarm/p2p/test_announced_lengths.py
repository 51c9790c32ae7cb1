"""A length that a peer announces in a negotiation never determines an allocation.

Memory is measured in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IOException
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.stream_muxer.exceptions import MuxedStreamError
from libp2p.utils.varint import encode_uvarint

from sapo_client.swarm.p2p.frames import FrameError
from sapo_client.swarm.p2p.negotiation import BoundedCommunicator
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.ed25519 import public_key

POUR_SECONDS = 6.0  # a second more than a handshake may take
HELLO = b"\x13/multistream/1.0.0\n"
MEBIBYTE = 2**20
ANNOUNCED = 2**30
"""Bytes of one line: more than any honest one, and less than the kernel refuses to reserve."""
MAX_RESERVED = 256 * MEBIBYTE
"""Address space that a node may take beside; a new thread alone takes 8 MiB, its arena 64 MiB more."""
MAX_TAKEN = 24 * MEBIBYTE


@dataclass
class Node:
    """A node in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.split("/")[4])

    @property
    def peer_id(self) -> str:
        return self.address.split("/")[-1]

    def memory(self) -> tuple[int, int]:
        """Return the most address space and the most memory that the process had so far, in bytes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        reserved, taken = self.process.stdout.readline().split()
        return int(reserved), int(taken)


@contextmanager
def _node(*bootstrap: str) -> Iterator[Node]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    command = [sys.executable, "-m", "support.measured_node", *bootstrap]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield Node(process, process.stdout.readline().strip())
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=30) == 0


@contextmanager
def _bounded(node: Node) -> Iterator[None]:
    """The block makes the node reserve and take no more than its bounds."""
    reserved, taken = node.memory()
    yield
    reserved_now, taken_now = node.memory()
    assert reserved_now - reserved < MAX_RESERVED
    assert taken_now - taken < MAX_TAKEN


async def _is_closed(connection: trio.SocketStream, tools: Any) -> None:
    with trio.fail_after(tools.PATIENCE_SECONDS), contextlib.suppress(trio.BrokenResourceError):
        while await connection.receive_some(MEBIBYTE):
            pass


async def _pour(write: Callable[[bytes], Awaitable[None]], mebibytes: int) -> None:
    """Write until the other side hangs up or takes no more, at most so much."""
    with trio.move_on_after(POUR_SECONDS), contextlib.suppress(IOException, StreamError, OSError):
        for _ in range(mebibytes * 16):
            await write(bytes(2**16))


async def test_a_long_line_announced_before_the_handshake_closes_the_connection(tools: Any) -> None:
    with _node() as node, _bounded(node):
        for _ in range(3):
            connection = await trio.open_tcp_stream("127.0.0.1", node.port)
            await connection.send_all(HELLO + encode_uvarint(ANNOUNCED) + b"x")
            await _is_closed(connection, tools)


async def test_a_long_line_announced_after_the_handshake_closes_the_connection(
    tools: Any, hostile: Any
) -> None:
    with _node() as node, _bounded(node):
        upgrader = hostile._host.swarm.upgrader
        raw = RawConnection(TrioTCPStream(await trio.open_tcp_stream("127.0.0.1", node.port)), True)
        secured = await upgrader.upgrade_security(raw, True, ID.from_base58(node.peer_id))
        await secured.write(HELLO + encode_uvarint(2**40))
        await _pour(secured.write, 96)
        await secured.close()


async def test_long_lines_announced_on_streams_close_the_connection(hostile: Any) -> None:
    with _node() as node, _bounded(node):
        victim = ID.from_base58(node.peer_id)
        await hostile.connect(node.address)
        connection = hostile._host.get_network().get_connections(victim)[0]

        async def announce() -> None:
            with contextlib.suppress(SwarmException, StreamError, MuxedStreamError):
                stream = await connection.new_stream()
                await stream.write(HELLO + encode_uvarint(2**40))
                await _pour(stream.write, 16)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(announce)


class Recorded(ReadWriteCloser):
    """A stream that holds given bytes and notes how many were asked for at once."""

    def __init__(self, data: bytes) -> None:
        self.data, self.most_asked = data, 0

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        assert n is not None
        self.most_asked = max(self.most_asked, n)
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...

    def get_remote_address(self) -> None: ...


async def test_stock_reads_the_announced_length_and_our_negotiation_one_byte() -> None:
    stock, ours = (Recorded(encode_uvarint(2**40) + b"x") for _ in range(2))
    with pytest.raises(MultiselectCommunicatorError):
        await MultiselectCommunicator(stock).read()
    with pytest.raises(FrameError):
        await BoundedCommunicator(ours).read()
    assert (stock.most_asked, ours.most_asked) == (2**40, 1)


async def test_invalid_line_lengths_on_a_stream_are_penalised(swarm: Any, tools: Any, hostile: Any) -> None:
    victim, honest = await swarm.start_members(2)
    await tools.eventually(lambda: tools.subscribed_peers(victim) == 1)
    for line in (encode_uvarint(2**40), encode_uvarint(1025), b"\xff" * 16, b"\x03abc", b"\x03\xff\xff\n"):
        victim.transport._discipline.scores._records.clear()  # each line counts by itself
        await hostile.connect(victim.transport.addresses[0])
        stream = await hostile._host.get_network().new_stream(ID.from_base58(victim.peer_id))
        await stream.write(HELLO + line)
        await tools.eventually(lambda: victim.transport.score(hostile.peer_id) < 0)
        await tools.eventually(lambda: hostile.peer_id not in victim.peer_ids())
    assert honest.peer_id in victim.peer_ids()
    assert swarm.bugs == []


async def test_a_long_line_announced_by_a_dialled_peer_closes_the_connection(tools: Any) -> None:
    dialled = trio.Event()

    async def announce(connection: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await connection.send_all(HELLO + encode_uvarint(ANNOUNCED) + b"x")
        await _is_closed(connection, tools)
        dialled.set()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, announce, [listener])
        port = listener.socket.getsockname()[1]
        with _node() as quiet:
            usual, _ = quiet.memory()
        attacker = peer_id_from_key(public_key(bytes([9]) * 32))
        with _node(f"/ip4/127.0.0.1/tcp/{port}/p2p/{attacker}") as node:
            with trio.fail_after(tools.PATIENCE_SECONDS):
                await dialled.wait()
            reserved, _ = node.memory()
            assert reserved - usual < MAX_RESERVED
        nursery.cancel_scope.cancel()
