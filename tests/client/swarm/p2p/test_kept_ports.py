"""A node that listens on any free port listens on the same one after a restart, where peers look for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

ANY = ("/ip4/127.0.0.1/tcp/0",)


async def start_again(swarm: Any, ports: Path, listen: tuple[str, ...] = ANY) -> tuple[str, ...]:
    """Start a node, stop it, and return the addresses at which it listened."""
    member = await swarm.start(1, listen=listen, port_file=ports)
    addresses: tuple[str, ...] = member.transport.addresses
    await member.stop()
    return addresses


async def test_a_node_listens_on_its_last_port_again(swarm: Any, tmp_path: Path) -> None:
    first = await start_again(swarm, tmp_path / "listen.txt")
    assert await start_again(swarm, tmp_path / "listen.txt") == first


async def test_a_peer_that_knew_a_node_before_its_restart_finds_it_again(
    swarm: Any, tmp_path: Path, tools: Any
) -> None:
    """The node has no bootstrap peer, and no addresses of peers: the peer must dial it."""
    node = await swarm.start(1, port_file=tmp_path / "listen.txt")
    peer = await swarm.start(2, bootstrap=node.transport.addresses)
    await tools.eventually(lambda: peer.peer_ids() != set())
    await node.stop()
    await tools.eventually(lambda: not peer.peer_ids())
    again = await swarm.start(1, port_file=tmp_path / "listen.txt")
    await tools.eventually(lambda: peer.peer_ids() == {again.peer_id})


async def test_a_port_that_another_program_holds_is_replaced(swarm: Any, tmp_path: Path) -> None:
    """The library sets SO_REUSEPORT, with which both could listen on it."""
    ports = tmp_path / "listen.txt"
    [first] = await start_again(swarm, ports)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", int(first.split("/")[4])))
        other.listen()
        [second] = await start_again(swarm, ports)
    assert second != first
    assert await start_again(swarm, ports) == (second,)


async def test_each_address_keeps_its_own_port(swarm: Any, tmp_path: Path) -> None:
    listen = ("/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.2/tcp/0")
    first = await start_again(swarm, tmp_path / "listen.txt", listen)
    assert len(set(first)) == 2
    assert sorted(await start_again(swarm, tmp_path / "listen.txt", listen)) == sorted(first)


async def test_a_stated_port_is_taken_whatever_was_kept(swarm: Any, tmp_path: Path) -> None:
    ports = tmp_path / "listen.txt"
    [first] = await start_again(swarm, ports)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        stated = other.getsockname()[1]
    [second] = await start_again(swarm, ports, (f"/ip4/127.0.0.1/tcp/{stated}",))
    assert int(second.split("/")[4]) == stated != int(first.split("/")[4])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish",
        "/ip4/127.0.0.1/tcp/0\n",
        "/ip4/127.0.0.1/tcp/99999",
        "/ip6/::1/tcp/5",
        "\u00e9" * 70_000,
    ],
)
async def test_a_damaged_file_is_ignored(swarm: Any, tmp_path: Path, text: str) -> None:
    ports = tmp_path / "listen.txt"
    ports.write_text(text)
    first = await start_again(swarm, ports)
    assert await start_again(swarm, ports) == first


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
async def test_a_port_for_root_alone_is_replaced(swarm: Any, tmp_path: Path) -> None:
    ports = tmp_path / "listen.txt"
    ports.write_text("/ip4/127.0.0.1/tcp/1\n")
    [first] = await start_again(swarm, ports)
    assert int(first.split("/")[4]) != 1
