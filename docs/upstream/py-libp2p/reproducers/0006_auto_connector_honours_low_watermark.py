"""The auto-connector dials although no connection is asked for."""

from __future__ import annotations

from libp2p.network.config import ConnectionConfig
from support import LOOPBACK, main, new_host


async def reproduce() -> str:
    """Return the fault that was found."""
    config = ConnectionConfig(min_connections=0, low_watermark=0, high_watermark=10, max_connections=10)
    host, other = new_host(201, connection_config=config), new_host(202)
    async with host.run([LOOPBACK]), other.run([LOOPBACK]):
        network = host.get_network()
        addresses = other.get_transport_addrs()
        network.peerstore.add_addrs(other.get_id(), addresses, 1000)
        network.auto_connector._started = True
        await network.auto_connector.maybe_connect()
        return "it dialled a peer without need" if network.connections else ""


if __name__ == "__main__":
    main(reproduce)
