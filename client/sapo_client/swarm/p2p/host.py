"""A libp2p host with exactly what this transport uses: TCP, Noise, yamux, identify (answers only), ping.

Stock `new_host` also offers secio and *plaintext*, under which a peer can claim any peer id; it sizes its
limits by the memory that the process uses, which a learner fills; its auto-connector dials what others
advertise; and it asks identify of each peer, which this transport does not need. None of that is here.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.ping import ID as PING
from libp2p.host.ping import PingService
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.identify import identify_handler_for
from libp2p.network.config import ConnectionConfig
from libp2p.network.connection import swarm_connection
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.stream_muxer.yamux.yamux import Yamux
from multiaddr.multiaddr import Multiaddr

from sapo_client.swarm.addresses import Scope, parse_address, scope_of
from sapo_client.swarm.limits import DialLimits, TransportLimits
from sapo_client.swarm.p2p.connections import GuardedSwarm
from sapo_client.swarm.p2p.muxer import BoundedUpgrader
from sapo_client.swarm.p2p.negotiation import BoundedMultiselect, BoundedMultiselectClient
from sapo_client.swarm.p2p.stream_guard import Blame, guarded
from sapo_client.swarm.vouched import VouchedPeers

_UPGRADE_SECONDS: Final = 5.0  # a handshake that takes longer does not deserve its slot


class Host(BasicHost):
    """Host that answers identify and sends no identify request itself."""

    def __init__(self, swarm: GuardedSwarm) -> None:
        super().__init__(swarm, default_protocols=OrderedDict(), disable_identify_address_discovery=True)
        self.swarm = swarm
        self.multiselect = BoundedMultiselect(self.multiselect.handlers)
        self.multiselect_client = BoundedMultiselectClient()

    def _schedule_identify(self, peer_id: ID, *, reason: str) -> None:
        """Do nothing: addresses are exchanged by our own peer exchange."""

    def listening(self) -> list[Multiaddr]:
        """Return the full addresses at which this host listens."""
        own = Multiaddr(f"/p2p/{self.get_id()!s}")
        return [address.encapsulate(own) for address in super().get_transport_addrs()]

    def get_addrs(self) -> list[Multiaddr]:
        """Return the addresses that identify and gossip's signed records send to every peer: the public ones.

        Addresses of this machine and of local networks are sent by the peer exchange, only to peers within
        them.
        """
        return [address for address in self.listening() if _is_for_everybody(address)]

    def get_transport_addrs(self) -> list[Multiaddr]:
        """Return no further addresses for identify if `get_addrs` is empty."""
        return []


def _is_for_everybody(address: Multiaddr) -> bool:
    parsed = parse_address(str(address))
    return parsed is not None and (parsed.unspecified or scope_of(parsed.host) is Scope.INTERNET)


def build_host(
    seed: bytes,
    *,
    limits: TransportLimits,
    dial: DialLimits,
    admits: Callable[[str], bool],
    vouched: VouchedPeers,
    blame: Blame,
    report: Callable[[Exception], None],
) -> Host:
    """Return the host of the node key with that 32-byte Ed25519 seed, not listening yet."""
    quiet()
    keys = create_new_key_pair(seed)
    peer = ID.from_pubkey(keys.public_key)
    peerstore = PeerStore()
    peerstore.add_key_pair(peer, keys)
    security = {NOISE: NoiseTransport(keys, noise_privkey=create_new_x25519_key_pair().private_key)}
    upgrader = BoundedUpgrader(security, {TProtocol(YAMUX): Yamux}, limits=limits, blame=blame, report=report)
    swarm = GuardedSwarm(
        peer=peer,
        peerstore=peerstore,
        upgrader=upgrader,
        connection_config=_connection_config(limits, dial),
        limits=limits,
        admits=admits,
        vouched=vouched,
        report=report,
    )
    host = Host(swarm)
    host.set_stream_handler(IDENTIFY, identify_handler_for(host, use_varint_format=True))
    host.set_stream_handler(PING, PingService(host).handle_ping)
    swarm.set_stream_handler(guarded(host._swarm_stream_handler, blame))
    return host


def _connection_config(limits: TransportLimits, dial: DialLimits) -> ConnectionConfig:
    return ConnectionConfig(
        max_connections=limits.max_connections,
        min_connections=0,
        low_watermark=0,
        high_watermark=limits.max_connections,
        max_connections_per_peer=2,  # two peers that dial each other at the same time keep both
        dial_timeout=dial.dial_timeout_seconds,
        inbound_upgrade_timeout=_UPGRADE_SECONDS,
        outbound_upgrade_timeout=_UPGRADE_SECONDS,
    )


def quiet() -> None:
    """Remove the library's logs from ours unless they were requested, since it logs lost connections as
    errors."""
    for name in logging.root.manager.loggerDict:
        if name.startswith("libp2p."):
            logging.getLogger(name).setLevel(logging.NOTSET)  # some set a level of their own
    library = logging.getLogger("libp2p")
    if library.level != logging.DEBUG:  # which the user asked for
        library.setLevel(logging.CRITICAL)
    # One module logs to the root logger, which installs a handler on stderr as a side effect.
    vars(swarm_connection)["logging"] = logging.getLogger("libp2p.network.connection")


def multiaddr(text: str) -> Multiaddr:
    """Return the multiaddr of a text that we parsed or configured ourselves."""
    return Multiaddr(text)
