"""The node's host on the network."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EADDRNOTAVAIL

import trio

from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.imports import collector_paused
from sapo_client.keystore import Identity
from sapo_client.observe.terminal import say
from sapo_client.swarm.addresses import ListenAddress, parse_address, parse_listen_address
from sapo_client.swarm.nearby import dialable
from sapo_client.swarm.p2p.listen_ports import probe_port
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import BugReport, Transport, TransportError
from sapo_protocol.manifest import Manifest


def require_addresses(config: Config) -> None:
    """Raise unless the configured addresses can be used; no socket stays open.

    The library sets SO_REUSEPORT on its sockets. Without this check two nodes could listen on one port, and
    each would receive a part of the other's connections.

    Raises:
        SapoError: an address is malformed (exit code 3), or its port is taken (exit code 5).
    """
    if config.swarm.alone:
        return
    for text in config.swarm.bootstrap:
        if parse_address(text) is None:
            raise SapoError(
                f"swarm.bootstrap: '{text}' is not the address of a node",
                hint="that node's `sapo join` printed it: /ip4/203.0.113.7/tcp/4001/p2p/12D3Koo...",
                exit_code=ExitCode.CONFIG,
            )
    for text in config.swarm.listen:
        address = parse_listen_address(text)
        if address is None:
            raise SapoError(
                f"swarm.listen: '{text}' is not an address to listen on",
                hint="write it as /ip4/0.0.0.0/tcp/4001: the IP address of an interface, and a port;"
                " in a variable, several are separated by commas",
                exit_code=ExitCode.CONFIG,
            )
        _require_free(text, address)


def _require_free(text: str, address: ListenAddress) -> None:
    try:
        probe_port(address)
    except OSError as error:
        hint = "if another program or node holds the port, choose one with --listen, or port 0 for any"
        if error.errno == EADDRNOTAVAIL:
            everywhere = "/ip6/::/tcp/0" if text.startswith("/ip6") else "/ip4/0.0.0.0/tcp/0"
            hint = (
                f"no interface of this machine has that address: --listen {everywhere} listens on all of them"
            )
        raise SapoError(
            f"cannot listen on {text}: {error.strerror}",
            hint=hint,
            exit_code=ExitCode.NETWORK,
        ) from error


def open_transport(config: Config, identity: Identity, manifest: Manifest, on_bug: BugReport) -> Transport:
    """Return the libp2p host of a node, with the node's key and the manifest's bootstrap addresses.

    A node that trains alone gets a transport that no other node can reach.
    """
    with collector_paused():
        from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
    from sapo_client.swarm.router.calls import UpnpRouters

    swarm = config.swarm
    if swarm.alone:
        from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport

        return MemoryTransport(MemoryHub(), peer_id_from_key(identity.node_id), on_bug=on_bug)
    try:
        return Libp2pTransport(
            identity.node_seed,
            on_bug=on_bug,
            listen=swarm.listen,
            bootstrap=(*swarm.bootstrap, *manifest.bootstrap),
            peer_cache=config.data_dir / "peers.txt",
            port_file=config.data_dir / "listen.txt",
            mdns_swarm=manifest.swarm_id.hex() if swarm.mdns else None,
            routers=UpnpRouters() if swarm.upnp else None,
        )
    except (ValueError, TransportError) as error:
        raise SapoError(
            str(error),
            hint="addresses look like /ip4/127.0.0.1/tcp/4001, those of other nodes end in /p2p/PEER_ID",
            exit_code=ExitCode.NETWORK,
        ) from error


async def start_transport(nursery: trio.Nursery, transport: Transport) -> None:
    """Start a transport in a nursery; return once it listens.

    Raises:
        SapoError: it cannot listen.
    """
    try:
        await nursery.start(transport.run)
    except TransportError as error:
        raise SapoError(
            str(error),
            hint="another program may hold the port: choose one with --listen /ip4/0.0.0.0/tcp/PORT",
            exit_code=ExitCode.NETWORK,
        ) from error


def say_joined(swarm: str, name: str, addresses: Sequence[str]) -> None:
    """Print the swarm that a node has joined, its name and the addresses at which others dial it."""
    say(f"joined {swarm} as {name}")
    for address in dialable(addresses):
        say(f"  listening on {address}")
