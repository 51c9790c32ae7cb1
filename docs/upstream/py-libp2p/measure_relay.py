"""Measure circuit relay v2 of the installed py-libp2p on loopback: speed, and places that stay taken.

Run as ``python docs/upstream/py-libp2p/measure_relay.py``; it takes about a minute. Two hosts listen nowhere
and meet over a third; then diallers come and vanish without closing their connections.
"""

from __future__ import annotations

import logging
import statistics
import time

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.relay.circuit_v2.config import RelayConfig, RelayRole
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID, CircuitV2Protocol
from libp2p.relay.circuit_v2.resources import RelayLimits
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

ECHO = TProtocol("/echo/1")
LIMITS = RelayLimits(duration=3600, data=2**30, max_circuit_conns=4, max_reservations=10)
BLOCK, BLOCKS, PINGS, DIALLERS = 32_768, 128, 50, 7


async def echo(stream):
    while data := await stream.read(65_536):
        await stream.write(data)


def build(number, role):
    """Return a host with its relay protocol and its transport over relays."""
    host = new_host(key_pair=create_new_key_pair(bytes([number]) * 32))
    host.set_stream_handler(ECHO, echo)
    protocol = CircuitV2Protocol(host, LIMITS, allow_hop=role is RelayRole.HOP)
    return host, protocol, CircuitV2Transport(host, protocol, RelayConfig(roles=role, limits=LIMITS))


async def measure(host, peer, name):
    """Print the round trip of 64 bytes, and how fast 4 MiB go there and back."""
    stream = await host.new_stream(peer, [ECHO])
    trips = []
    for _ in range(PINGS):
        started = time.perf_counter()
        await stream.write(bytes(64))
        await stream.read(64)
        trips.append((time.perf_counter() - started) * 1e3)
    started = time.perf_counter()
    for _ in range(BLOCKS):
        await stream.write(bytes(BLOCK))
        received = 0
        while received < BLOCK:
            received += len(await stream.read(65_536))
    speed = BLOCK * BLOCKS / (time.perf_counter() - started) / 1e6
    print(f"{name}: round trip {statistics.median(trips):.2f} ms, {speed:.2f} MB/s each way", flush=True)


async def dial_and_vanish(number, relay, address):
    """Connect over the relay and end without closing the connection; return what became of it."""
    host, protocol, transport = build(number, RelayRole.CLIENT)
    try:
        async with host.run([]), background_trio_service(protocol):
            await host.connect(relay)
            with trio.fail_after(15):
                await transport.dial(address)
            return "connected"
    except Exception as error:  # noqa: BLE001  whatever the library raises is the result
        return f"refused ({type(error).__name__})"


async def main():
    relay_host, relay_protocol, _ = build(1, RelayRole.HOP)
    asker, asker_protocol, dialler = build(2, RelayRole.CLIENT)
    target, target_protocol, listener = build(3, RelayRole.STOP | RelayRole.CLIENT)
    async with (
        relay_host.run([Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        asker.run([]),
        target.run([]),
        background_trio_service(relay_protocol),
        background_trio_service(asker_protocol),
        background_trio_service(target_protocol),
    ):
        relay = info_from_p2p_addr(relay_host.get_addrs()[0])
        for host in (asker, target):
            await host.connect(relay)
        await measure(asker, relay.peer_id, "direct")
        await listener._make_reservation(await target.new_stream(relay.peer_id, [PROTOCOL_ID]), relay.peer_id)
        circuit = f"{relay.addrs[0]}/p2p/{relay.peer_id}/p2p-circuit/p2p/{target.get_id()}"
        started = time.perf_counter()
        await dialler.dial(Multiaddr(circuit))
        print(f"dialled over the relay in {(time.perf_counter() - started) * 1e3:.0f} ms", flush=True)
        await measure(asker, target.get_id(), "relayed")
        for number in range(DIALLERS):
            result = await dial_and_vanish(10 + number, relay, Multiaddr(circuit))
            await trio.sleep(3)
            taken = relay_protocol.resource_manager.get_reservation(target.get_id()).active_connections
            print(f"dialler {number + 1}: {result}; {taken} of 4 places are taken after it", flush=True)
        for host in (asker, target, relay_host):
            await host.close()


if __name__ == "__main__":
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    trio.run(main)
