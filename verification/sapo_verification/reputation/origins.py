"""The network from which an account's own node first sent one of its rollouts to this node.

Many accounts can be run cheaply in one data center, so all accounts behind one /24 (IPv4) or one /48 (IPv6)
share a cap. The information is limited: an address is known only of an author that is connected to this node
and sends its own rollout. An author whose rollouts come through other nodes has no network here, and an
attacker with addresses in many networks has many. Loopback and private ranges are exempt, for swarms on one
machine, and since a private address does not identify a network.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NewType

from sapo_protocol.identifiers import Account
from sapo_verification.store import Source, StoreSchema, open_database

Network = NewType("Network", str)
"""A prefix such as ``203.0.113.0/24``."""

IPV4_PREFIX_BITS: Final = 24
"""The smallest block that is routed on its own, and so rented as one."""

IPV6_PREFIX_BITS: Final = 48
"""The block that one site is usually given."""

MAX_ORIGINS: Final = 65_536
"""About 100 bytes each; the oldest are dropped first."""

_SCHEMA = StoreSchema(
    "origins",
    """
    CREATE TABLE IF NOT EXISTS origin (
        number INTEGER PRIMARY KEY, account BLOB NOT NULL UNIQUE, network TEXT NOT NULL
    );
    """,
)


def no_network(_account: Account) -> Network | None:
    """Return None, as for an account whose network is unknown."""
    return None


def network_of_host(host: str) -> Network | None:
    """Return the network of an IP address; None if it is exempt or not an IP address."""
    try:
        address = ip_address(host.partition("%")[0])  # a zone belongs to a link-local address
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if not address.is_global:
        return None
    bits = IPV4_PREFIX_BITS if isinstance(address, IPv4Address) else IPV6_PREFIX_BITS
    return Network(str(ip_network((address, bits), strict=False)))


class Origins:
    """The first known network of each account, in SQLite; it does not change later."""

    def __init__(self, path: Source = ":memory:", max_origins: int = MAX_ORIGINS) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._max_origins = max_origins

    def learn(self, account: Account, host: str) -> None:
        """Record the network of the address of an account's own node, unless one is known."""
        network = network_of_host(host)
        if network is None or self.network_of(account) is not None:
            return
        cursor = self._connection.execute(
            "INSERT INTO origin (account, network) VALUES (?, ?)", (account, network)
        )
        newest = cursor.lastrowid or 0
        self._connection.execute("DELETE FROM origin WHERE number <= ?", (newest - self._max_origins,))

    def network_of(self, account: Account) -> Network | None:
        """Return the network of an account, or None if it is unknown."""
        row = self._connection.execute("SELECT network FROM origin WHERE account = ?", (account,)).fetchone()
        return Network(row[0]) if row else None
