"""Real nodes determine whether others can connect to them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from sapo_client.swarm.reachability import PROTOCOL, DialAnswer, DialResult, Reachability, parse_answer


async def test_a_node_that_listens_is_reachable(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(2)
    await swarm.wait_until_connected(members)
    _, asker = members
    assert asker.transport.reachability() is Reachability.UNKNOWN
    await asker.transport._dial_back.ask_next()
    assert asker.transport.reachability() is Reachability.REACHABLE


async def test_a_node_knows_the_address_at_which_two_peers_reached_it(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(3)
    await swarm.wait_until_connected(members)
    boot, other, asker = (member.transport for member in members)
    [address] = asker.addresses
    port = address.split("/")[4].encode()
    await other.connect(address)
    seen = []
    for peer_id in (boot.peer_id, other.peer_id):
        payload = await asker.request(peer_id, PROTOCOL, port, max_response_bytes=128)
        answer = parse_answer(payload)
        assert answer is not None
        asker._dial_back.answers.add(peer_id, answer)
        seen.append(asker.reached_at())
    assert seen == [(), (address,)]
    assert boot.reached_at() == ()


async def test_a_node_without_answers_infers_reachability_from_inbound_peers(
    swarm: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All peers of a bootstrap node are inbound, so it can ask none; a single host proves nothing."""
    members = await swarm.start_members(3)
    await swarm.wait_until_connected(members)
    boot, *others = (member.transport for member in members)
    assert boot._discovery.chosen() == ()
    await boot._dial_back.ask_next()
    states = [boot.reachability()]
    hosts = dict(zip((other.peer_id for other in others), ("203.0.113.7", "198.51.100.1"), strict=True))
    monkeypatch.setattr(boot._dial_back, "_remote_host", hosts.get)
    states.append(boot.reachability())
    for other in others:
        boot._dial_back.answers.add(other.peer_id, DialAnswer(DialResult.REFUSED, "192.0.2.1"))
    states.append(boot.reachability())
    assert states == [Reachability.UNKNOWN, Reachability.REACHABLE, Reachability.UNREACHABLE]


async def test_probes_of_a_closed_or_foreign_port_are_refused(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(3)
    await swarm.wait_until_connected(members)
    boot, other, asker = (member.transport for member in members)
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    silent = listener.socket.getsockname()[1]
    await listener.aclose()

    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example.org ESMTP service ready\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        stranger = (await nursery.start(trio.serve_tcp, greet, 0))[0].socket.getsockname()[1]
        for port, peer in ((silent, boot), (stranger, other)):
            payload = await asker.request(peer.peer_id, PROTOCOL, str(port).encode(), max_response_bytes=128)
            assert parse_answer(payload) == DialAnswer(DialResult.REFUSED, "127.0.0.1")
        nursery.cancel_scope.cancel()


async def test_probe_requests_without_a_port_are_refused_and_floods_are_cut(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(2)
    await swarm.wait_until_connected(members)
    boot, asker = (member.transport for member in members)
    port = asker.addresses[0].split("/")[4].encode()

    async def ask(payload: bytes) -> DialAnswer | None:
        return parse_answer(await asker.request(boot.peer_id, PROTOCOL, payload, max_response_bytes=128))

    assert await ask(b"65536") is None
    results = [await ask(port) for _ in range(4)]
    reached, busy = (DialAnswer(each, "127.0.0.1") for each in (DialResult.REACHED, DialResult.BUSY))
    assert results == [reached, reached, reached, busy]
    assert swarm.bugs == []
