"""Real libp2p nodes on loopback, in the configuration of a node."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest
import trio

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.peer_exchange import PROTOCOL as PEERS
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import TransportError
from sapo_protocol.ed25519 import public_key
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.rules import Rule


async def test_nodes_find_each_other_and_every_message_reaches_every_node(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(5)
    await swarm.wait_until_connected(members)
    for member in members:
        assert await member.publish(b"from " + member.peer_id.encode()) == 4
    everything = {b"from " + member.peer_id.encode() for member in members}
    for member in members:
        expected = everything - {b"from " + member.peer_id.encode()}
        await tools.eventually(lambda accepted=member.accepted, expected=expected: set(accepted) == expected)
        assert len(member.accepted) == 4
        hosts = {peer.remote_host for peer in member.transport.peers()}
        assert hosts == {"127.0.0.1"}, "seen, not claimed"
    assert swarm.bugs == []


async def test_a_message_of_the_largest_size_is_sent_and_a_larger_one_is_an_error(
    swarm: Any, tools: Any
) -> None:
    members = await swarm.start_members(3)
    await swarm.wait_until_connected(members)
    largest = bytes(TransportLimits().max_message_bytes)
    await members[0].publish(largest)
    await tools.eventually(lambda: all(member.accepted == [largest] for member in members[1:]))
    with pytest.raises(ValueError, match="allowed"):
        await members[0].publish(largest + b"\x00")


async def test_publishing_without_peers_returns_zero(swarm: Any) -> None:
    alone = await swarm.start(1)
    assert await alone.publish(b"anyone?") == 0


async def test_a_message_published_before_the_mesh_exists_still_arrives(swarm: Any, tools: Any) -> None:
    first = await swarm.start(1)
    await first.publish(b"early bird")
    late = await swarm.start(2, bootstrap=first.transport.addresses)
    await tools.eventually(lambda: late.accepted == [b"early bird"])


async def test_ignore_causes_no_penalty_and_repeated_rejects_disconnect(swarm: Any, tools: Any) -> None:
    validator, author = await swarm.start_members(2)
    await swarm.wait_until_connected([validator, author])
    await author.publish(b"ignore this")
    await author.publish(b"bug in the validator")
    await author.publish(b"a good one")
    await tools.eventually(lambda: validator.accepted == [b"a good one"])
    assert validator.transport.score(author.peer_id) == 0
    assert [repr(bug) for bug in swarm.bugs] == ["KeyError('as asked for')"]

    await author.publish(b"reject 0")
    await tools.eventually(lambda: validator.transport.counters()["rejected"] == 1)
    assert -5 <= validator.transport.score(author.peer_id) < -4.9
    assert author.peer_id in validator.peer_ids()
    for number in range(1, 5):
        await author.publish(b"raise %d" % number)
    await tools.eventually(lambda: author.peer_id not in validator.peer_ids())
    assert validator.transport.score(author.peer_id) < -20
    dials = author.transport.counters()["dials"]
    await tools.eventually(lambda: author.transport.counters()["dials"] >= dials + 3)
    assert validator.peer_ids() == set()


async def test_messages_of_a_restarted_node_with_the_same_key_arrive(swarm: Any, tools: Any) -> None:
    members = await swarm.start_members(3)
    await swarm.wait_until_connected(members)
    await members[2].publish(b"before")
    await tools.eventually(lambda: members[0].accepted == [b"before"])
    await members[2].stop()
    await tools.eventually(lambda: members[2].peer_id not in members[1].peer_ids())
    again = await swarm.start(3, bootstrap=members[0].transport.addresses)
    assert again.peer_id == members[2].peer_id
    await swarm.wait_until_connected([members[0], members[1], again])
    await again.publish(b"after")
    await members[1].publish(b"welcome back")
    await tools.eventually(lambda: set(members[0].accepted) == {b"before", b"after", b"welcome back"})
    await tools.eventually(lambda: b"welcome back" in again.accepted)


async def test_others_return_to_a_restarted_bootstrap_node(swarm: Any, tools: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = (f"/ip4/127.0.0.1/tcp/{probe.getsockname()[1]}",)
    boot = await swarm.start(1, listen=listen)
    # Each knows and dials only the bootstrap peer: only its return connects them.
    loners = tools.replace(tools.QUICK_DIAL, target_peers=1)
    others = [await swarm.start(n, bootstrap=boot.transport.addresses, dial=loners) for n in (2, 3)]
    await tools.eventually(lambda: len(boot.transport.peers()) == 2)
    await boot.stop()
    await tools.eventually(lambda: all(boot.peer_id not in other.peer_ids() for other in others))
    boot = await swarm.start(1, listen=listen)
    await tools.eventually(lambda: tools.subscribed_peers(boot) == 2)
    await boot.publish(b"I am back")
    await tools.eventually(lambda: all(other.accepted[-1:] == [b"I am back"] for other in others))


async def test_a_stopped_node_closes_its_sockets_even_if_its_process_continues(
    swarm: Any, tools: Any
) -> None:
    """The kernel would go on giving the old socket a share of the connections to the port."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in (first, second)]
    listen = tuple(f"/ip4/127.0.0.1/tcp/{port}" for port in ports)
    old = await swarm.start(1, listen=listen)
    other = await swarm.start(2, bootstrap=old.transport.addresses)
    await swarm.wait_until_connected([old, other])
    addresses = set(old.transport.addresses)
    await old.stop()
    for port in ports:
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
    new = await swarm.start(1, listen=listen)
    assert set(new.transport.addresses) == addresses
    await swarm.wait_until_connected([new, other])


async def test_addresses_of_this_machine_are_accepted_only_from_this_machine(swarm: Any, tools: Any) -> None:
    """Who connects over a network cannot point a node at services of its own machine."""
    host = tools.host_of_this_machine()
    own, third = (peer_id_from_key(public_key(bytes([number]) * 32)) for number in (2, 100))
    announced = (f"/ip4/127.0.0.1/tcp/22/p2p/{own}", f"/ip4/{host}/tcp/1/p2p/{own}")
    told = (f"/ip4/127.0.0.1/tcp/22/p2p/{third}", f"/ip4/{host}/tcp/1/p2p/{third}")
    asked: list[str] = []

    async def answer(_peer_id: str, request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked.append(request.decode())
        return "\n".join(told).encode()

    victim = await swarm.start(1, listen=(f"/ip4/{host}/tcp/0", "/ip4/127.0.0.1/tcp/0"))
    [reached] = [address for address in victim.transport.addresses if f"/{host}/" in address]
    other = await swarm.start(2, bootstrap=(reached,), announce=announced)
    other.transport.serve(PEERS, answer)
    await tools.eventually(lambda: victim.transport._discovery.addresses_of(third) and asked)
    assert victim.transport._discovery.addresses_of(third) == told[1:]
    assert asked[0] == reached, "it does not say its own address of this machine either"
    await tools.eventually(lambda: victim.transport._discovery.addresses_of(own))
    assert victim.transport._discovery.addresses_of(own) == announced[1:]


async def test_peers_are_found_again_without_the_bootstrap_node(
    swarm: Any, tools: Any, tmp_path: Any
) -> None:
    boot = await swarm.start(1)
    keeper = await swarm.start(2, bootstrap=boot.transport.addresses, peer_cache=tmp_path / "peers.txt")
    other = await swarm.start(3, bootstrap=boot.transport.addresses)
    await swarm.wait_until_connected([boot, keeper, other])
    known = {boot.peer_id, other.peer_id}  # a slow peer may be away for a moment
    await tools.eventually(lambda: {p.peer_id for p in keeper.transport.peers() if p.addresses} == known)
    await keeper.stop()
    await boot.stop()
    keeper = await swarm.start(2, peer_cache=tmp_path / "peers.txt")
    await tools.eventually(lambda: other.peer_id in keeper.peer_ids())


async def test_a_flood_is_cut_while_honest_messages_arrive(swarm: Any, tools: Any) -> None:
    strict = TransportLimits(messages=Rate(per_second=20, burst=40), flood_pause_seconds=0.02)
    victim = await swarm.start(1, limits=strict)
    flooder = await swarm.start(2, bootstrap=victim.transport.addresses)
    await tools.eventually(lambda: tools.subscribed_peers(flooder) == 1)
    for number in range(400):
        await flooder.publish(b"idle flood %d" % number)
    honest = await swarm.start(3, bootstrap=victim.transport.addresses, limits=strict)
    await tools.eventually(lambda: tools.subscribed_peers(honest) >= 1)
    for number in range(5):
        await honest.publish(b"honest %d" % number)
    await tools.eventually(lambda: len([d for d in victim.accepted if d.startswith(b"honest")]) == 5)
    await tools.eventually(lambda: flooder.peer_id not in victim.peer_ids())
    assert victim.transport.score(flooder.peer_id) < -20
    assert victim.transport.score(honest.peer_id) == 0
    assert victim.transport.counters()["ignored"] < 200


async def test_a_burst_that_follows_from_the_quotas_is_no_flood(swarm: Any, tools: Any) -> None:
    # 200 at once where quotas ask for more; control messages count, too
    limits = TransportLimits(messages=Rate(per_second=0.001, burst=40))
    strict, informed = [await swarm.start(number, limits=limits) for number in (1, 2)]
    informed.transport.expect(1.0)
    addresses = (*strict.transport.addresses, *informed.transport.addresses)
    relay = await swarm.start(3, bootstrap=addresses)
    await tools.eventually(lambda: tools.subscribed_peers(relay) == 2)
    for number in range(100):
        await relay.publish(b"burst %d" % number)
    await tools.eventually(lambda: len(informed.accepted) == 100)
    assert informed.transport.counters()["flood_pauses"] == 0
    await tools.eventually(lambda: strict.transport.counters()["flood_pauses"] > 0)


async def test_requests_are_answered_within_their_limits(swarm: Any, tools: Any) -> None:
    limits = TransportLimits(request_timeout_seconds=1.0)
    server = await swarm.start(1, limits=limits)
    asker = await swarm.start(2, bootstrap=server.transport.addresses, limits=limits)
    await tools.eventually(lambda: server.peer_id in asker.peer_ids())

    async def handler(peer_id: str, payload: bytes) -> bytes:
        if payload == b"slow":
            await trio.sleep_forever()
        if payload == b"bad":
            raise RemoteProtocolError(Rule.ENVELOPE_KEYS, "as asked for")
        return b"to " + peer_id.encode() + b": " + payload if payload != b"big" else bytes(1000)

    server.transport.serve("/sapo/test/1", handler)
    ask = asker.transport.request
    expected = b"to " + asker.peer_id.encode() + b": hello"
    assert await ask(server.peer_id, "/sapo/test/1", b"hello", max_response_bytes=999) == expected
    assert await ask(server.peer_id, "/sapo/test/1", b"big", max_response_bytes=1000) == bytes(1000)
    for payload in (b"big", b"slow", b"bad"):
        with pytest.raises(TransportError):
            await ask(server.peer_id, "/sapo/test/1", payload, max_response_bytes=999)
    with pytest.raises(TransportError):
        await ask(server.peer_id, "/sapo/unserved/1", b"", max_response_bytes=1)
    with pytest.raises(TransportError, match="not connected"):
        await server.transport.request(server.peer_id, PEERS, b"", max_response_bytes=1)
    assert -5 <= server.transport.score(asker.peer_id) < -4.9
    assert asker.peer_id in server.peer_ids()


async def test_too_many_requests_are_refused_with_a_small_penalty(swarm: Any, tools: Any) -> None:
    limits = TransportLimits(requests=Rate(per_second=0.001, burst=6))
    server = await swarm.start(1, limits=limits)
    asker = await swarm.start(2, bootstrap=server.transport.addresses)
    await tools.eventually(lambda: server.peer_id in asker.peer_ids())

    async def handler(_peer_id: str, payload: bytes) -> bytes:
        return payload

    server.transport.serve("/sapo/test/1", handler)
    answered = 0
    with contextlib.suppress(TransportError):
        while answered < 7:
            await asker.transport.request(server.peer_id, "/sapo/test/1", b"x", max_response_bytes=9)
            answered += 1
    assert 0 < answered <= 6  # the peer exchange took some of the burst
    assert -2 <= server.transport.score(asker.peer_id) < -0.9


async def test_wrong_addresses_are_transport_errors(swarm: Any) -> None:
    alone = await swarm.start(1)
    closed = alone.transport.addresses[0].replace("/tcp/", "/tcp/1/p2p/x")
    nobody = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"
    for address in ("", closed, nobody):
        with pytest.raises(TransportError):
            await alone.transport.connect(address)


async def test_an_address_in_use_is_an_error_at_the_start(swarm: Any) -> None:
    with socket.socket() as blocker:
        blocker.bind(("127.0.0.1", 0))
        blocker.listen()
        taken = f"/ip4/127.0.0.1/tcp/{blocker.getsockname()[1]}"
        with pytest.raises(TransportError, match="cannot listen"):
            await swarm.start(1, listen=(taken,))
