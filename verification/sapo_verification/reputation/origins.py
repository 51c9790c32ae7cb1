"""Where accounts were first heard from: the network behind a peer that sent its own rollout itself.

One machine room rents many accounts cheaply, so what comes from behind one /24 (IPv4) or one /48
(IPv6) shares a cap. What this sees is little, and it says so: only an author who is connected to us
and hands us its own rollout shows an address. An author whom others relay has no network here, and
a sender with addresses in many networks has many. Loopback and private ranges are exempt: a swarm
on one desk is no attack on itself, and a router's inside says nothing about who is behind it.
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
"""What one site is usually given."""

MAX_ORIGINS: Final = 65_536
"""About 100 bytes each; the oldest are forgotten first."""

_SCHEMA = StoreSchema(
    "origins",
    """
    CREATE TABLE IF NOT EXISTS origin (
        number INTEGER PRIMARY KEY, account BLOB NOT NULL UNIQUE, network TEXT NOT NULL
    );
    """,
)


def no_network(_account: Account) -> Network | None:
    """None: nothing is known of anybody."""
    return None


def network_of_host(host: str) -> Network | None:
    """Return the network of an IP address, or none where it is exempt or no address."""
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
    """The network each account was first heard from, in SQLite; the first one stays."""

    def __init__(self, path: Source = ":memory:", most: int = MAX_ORIGINS) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._most = most

    def learn(self, account: Account, host: str) -> None:
        """Keeps the network of the address that an account's own peer came from, unless one is known."""
        network = network_of_host(host)
        if network is None or self.network_of(account) is not None:
            return
        cursor = self._connection.execute(
            "INSERT INTO origin (account, network) VALUES (?, ?)", (account, network)
        )
        newest = cursor.lastrowid or 0
        self._connection.execute("DELETE FROM origin WHERE number <= ?", (newest - self._most,))

    def network_of(self, account: Account) -> Network | None:
        """Return the network of an account, if it ever showed one."""
        row = self._connection.execute("SELECT network FROM origin WHERE account = ?", (account,)).fetchone()
        return Network(row[0]) if row else None
