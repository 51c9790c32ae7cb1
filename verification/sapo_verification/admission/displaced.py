"""Displaced certificates: those of nodes that signed an accepted rollout and are no longer known.

They sign nothing new. But they still help to prove that an account has equivocated: else it would have its
other keys' certificates displace them. They are kept over a restart, with the rollouts that they signed.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sapo_protocol.certificate import Certificate
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, NodeId

MAX_DISPLACED: Final = 8192
"""Displaced certificates kept, about 300 bytes each; beyond it the one displaced first is dropped."""

DISPLACED_TABLE: Final = """
    CREATE TABLE displaced (
        node BLOB NOT NULL, account BLOB NOT NULL, envelope BLOB NOT NULL, PRIMARY KEY (node, account)
    );
    """
"""Its rows are numbered in the order in which they were displaced."""

_Key = tuple[NodeId, Account]


@dataclass(frozen=True, slots=True)
class Entry:
    """A certificate with its message as received."""

    certificate: Certificate
    envelope: bytes


@dataclass(slots=True, eq=False)
class DisplacedCertificates:
    """Displaced certificates by node and account, bounded in number.

    Attributes:
        connection: to a database that has the table.
    """

    connection: sqlite3.Connection
    _entries: OrderedDict[_Key, Entry] = field(default_factory=OrderedDict)
    _accounts: dict[NodeId, dict[Account, None]] = field(default_factory=dict)

    def restore(self, open_valid: Callable[[bytes], Certificate]) -> None:
        """Read the stored ones; those that ``open_valid`` refuses are deleted."""
        rows = self.connection.execute("SELECT node, account, envelope FROM displaced ORDER BY rowid")
        for node, account, envelope in rows.fetchall():
            try:
                certificate = open_valid(envelope)
            except RemoteProtocolError:
                self._delete((node, account))
            else:
                self._add((certificate.node, certificate.account), Entry(certificate, envelope))

    def get(self, key: _Key) -> Entry | None:
        """Return the certificate kept for a node and account, if any."""
        return self._entries.get(key)

    def keep(self, key: _Key, entry: Entry) -> None:
        """Keep a certificate."""
        self._add(key, entry)
        self.connection.execute("INSERT OR REPLACE INTO displaced VALUES (?, ?, ?)", (*key, entry.envelope))
        if len(self._entries) > MAX_DISPLACED:
            self.forget(next(iter(self._entries)))

    def forget(self, key: _Key) -> bool:
        """Forget a certificate; return whether it was kept."""
        if self._entries.pop(key, None) is None:
            return False
        node, account = key
        del self._accounts[node][account]
        if not self._accounts[node]:
            del self._accounts[node]
        self._delete(key)
        return True

    def envelopes_of(self, node: NodeId) -> Iterator[bytes]:
        """Yield the messages of a node's certificates."""
        return (self._entries[node, account].envelope for account in self._accounts.get(node, ()))

    def _add(self, key: _Key, entry: Entry) -> None:
        node, account = key
        self._entries[key] = entry
        self._accounts.setdefault(node, {})[account] = None

    def _delete(self, key: tuple[bytes, bytes]) -> None:
        self.connection.execute("DELETE FROM displaced WHERE node = ? AND account = ?", key)
