"""The node's host on the network."""

from __future__ import annotations

import trio

from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.swarm.transport import BugReport, Transport, TransportError
from sapo_protocol.manifest import Manifest


def open_transport(config: Config, identity: Identity, manifest: Manifest, on_bug: BugReport) -> Transport:
    """Return the libp2p host of a node, with the node's key and the manifest's bootstrap addresses."""
    from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

    swarm = config.swarm
    try:
        return Libp2pTransport(
            identity.node_seed,
            on_bug=on_bug,
            listen=swarm.listen,
            bootstrap=(*swarm.bootstrap, *manifest.bootstrap),
            peer_cache=config.data_dir / "peers.txt",
        )
    except ValueError as error:
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
