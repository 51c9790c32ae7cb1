"""The certificates that this node knows: which node key signs for which account.

They are kept in SQLite as received, and admitted again at the next start.
"""

import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from sapo_protocol.certificate import Certificate, open_certificate, parse_certificate
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_verification.admission.displaced import DISPLACED_TABLE, DisplacedCertificates, Entry
from sapo_verification.admission.drop_order import DropOrder
from sapo_verification.islands import IslandMap, TopicIslands
from sapo_verification.standing import Standing
from sapo_verification.store import Source, StoreSchema, open_database, open_for_reading

MAX_CERTIFICATES: Final = 8192
"""Certificates kept, about 300 bytes each. Beyond it some are dropped, see ``drop_order``."""

MAX_NODES_PER_ACCOUNT: Final = 4
"""As in the registry contract; more keys would give no more slots, only more certificates to keep."""


MIN_EXTENSION_SECONDS: Final = 3600
"""A renewal must extend the validity by at least this; else a key could send a new one with each message."""

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")

_NOBODY: Final = Account(bytes(Account.SIZE))

_SCHEMA = StoreSchema(
    "certificates",
    """
    CREATE TABLE IF NOT EXISTS certificate (
        node BLOB NOT NULL, account BLOB NOT NULL, envelope BLOB NOT NULL, PRIMARY KEY (node, account)
    ) WITHOUT ROWID;
    """,
    # version 1 forgot displaced certificates at a restart
    DISPLACED_TABLE,
)


class NotIntroduced(RemoteProtocolError):
    """Refusal of a message whose author's certificate this node lacks."""

    def __init__(self, node: NodeId) -> None:
        super().__init__(Rule.AUTHOR_INTRODUCED, f"the certificate of node {node.hex()[:8]} is not known")
        self.node = node


class CertificateStore:
    """Certificates by node and account, bounded in number.

    Args:
        islands: the home islands of accounts; needed only in a swarm with islands.
        own: this node's account, whose certificate is accepted without a bond.
        is_newcomer: whether an account has no reputation yet; certificates of such accounts are dropped
            first.
        key: secret random bytes, new at each start, that order newcomers' certificates for dropping; drawn
            here by default.
    """

    def __init__(
        self,
        manifest: Manifest,
        path: Source = ":memory:",
        max_certificates: int = MAX_CERTIFICATES,
        islands: IslandMap | None = None,
        own: Account = _NOBODY,
        is_newcomer: Callable[[Account], bool] = lambda _: True,
        key: bytes | None = None,
    ) -> None:
        self._max_certificates = max_certificates
        self._manifest = manifest
        self.islands: Final = islands or IslandMap(manifest, lambda _epoch: None)
        self.standing: Final = Standing(manifest, own)
        self._own = own
        self._is_newcomer = is_newcomer
        self._entries: OrderedDict[tuple[NodeId, Account], Entry] = OrderedDict()
        self._nodes: dict[Account, dict[NodeId, None]] = {}
        """Nodes of each account, in the order of reception."""
        self._accounts: dict[NodeId, dict[Account, None]] = {}
        self._have_signed: set[tuple[NodeId, Account]] = set()
        self._order = DropOrder(key or secrets.token_bytes(32), self.standing.weight_of, self._is_needed)
        self._connection = open_database(path, _SCHEMA)
        self._displaced = DisplacedCertificates(self._connection)

    def restore(self, now_seconds: float) -> int:
        """Admit the stored certificates again; return how many there are. Expired and invalid ones are
        deleted, displaced ones as well.

        Those that are valid later are kept: the clock may be behind now, and the messages of an own earlier
        key, which nobody else has, are worth nothing without its certificate.
        """
        self._displaced.restore(lambda envelope: self._open(envelope, now_seconds, is_stored=True))
        for node, account, envelope in _rows(self._connection):
            if (node, account) in self._entries:
                continue
            try:
                self._admit(envelope, now_seconds, None, is_stored=True)
            except RemoteProtocolError:
                self._delete((node, account))
        return len(self)

    def __len__(self) -> int:
        return len(self._entries)

    def admit(self, data: bytes, now_seconds: float, topic_islands: TopicIslands = None) -> Certificate:
        """Store the certificate in a message and return it.

        Args:
            topic_islands: islands of the topic on which it was received; None accepts any island.

        Raises:
            RemoteProtocolError: with the reason that decides the verdict.
        """
        return self._admit(data, now_seconds, topic_islands, is_stored=False)

    def _admit(
        self, data: bytes, now_seconds: float, topic_islands: TopicIslands, *, is_stored: bool
    ) -> Certificate:
        envelope = parse_envelope(data, self._manifest.swarm_id)
        if topic_islands is not None or self.standing.has_gate:
            account = parse_certificate(open_payload(envelope, Kind.CERTIFICATE)).account
            self.islands.require_certificate(account, now_seconds, topic_islands)
            self.standing.require_now(account, now_seconds)
        certificate = self._open(data, now_seconds, is_stored=is_stored)
        self._insert(certificate, data, now_seconds)
        return certificate

    def require(self, node: NodeId, account: Account, now_seconds: float) -> None:
        """Raise unless the node has a valid certificate for the account now (stage 5).

        Raises:
            RemoteProtocolError: ``CERTIFICATE_UNKNOWN`` or ``CERTIFICATE_EXPIRED``.
        """
        self._require(self._entries.get((node, account)), node, now_seconds)

    def require_of_proof(self, node: NodeId, account: Account, now_seconds: float) -> None:
        """As ``require``, for a rollout that proves an equivocation, or that was accepted before a restart.

        A displaced certificate will do.

        Raises:
            RemoteProtocolError: ``CERTIFICATE_UNKNOWN`` or ``CERTIFICATE_EXPIRED``.
        """
        key = (node, account)
        self._require(self._entries.get(key) or self._displaced.get(key), node, now_seconds)

    def note_signed(self, node: NodeId, account: Account) -> None:
        """Record that a known node has signed an accepted rollout: its certificate is kept for proofs."""
        if (node, account) in self._entries:
            self._have_signed.add((node, account))

    def _require(self, entry: Entry | None, node: NodeId, now_seconds: float) -> None:
        if entry is None:
            raise NotIntroduced(node)
        if not entry.certificate.covers(now_seconds):
            raise RemoteProtocolError(
                Rule.AUTHOR_CERTIFICATE_COUNTS, f"the certificate of {node.hex()[:8]} has expired"
            )

    def envelopes(self) -> tuple[bytes, ...]:
        """Return the messages of all certificates, as received, for peers that ask."""
        return tuple(entry.envelope for entry in self._entries.values())

    def pairs(self) -> tuple[tuple[NodeId, Account], ...]:
        """Return every node key with an account that has certified it."""
        return tuple(self._entries)

    def envelopes_of(self, nodes: Collection[NodeId]) -> tuple[bytes, ...]:
        """Return the messages of the certificates of some nodes, also of displaced ones."""
        keys = [(node, account) for node in nodes for account in self._accounts.get(node, ())]
        displaced = (envelope for node in nodes for envelope in self._displaced.envelopes_of(node))
        return (*displaced, *(self._entries[key].envelope for key in keys))

    def forget(self, is_needed: Callable[[Account], bool]) -> None:
        """Drop the certificates of accounts that are not needed."""
        for key in [key for key in self._entries if not is_needed(key[1])]:
            self._delete(key)

    def accounts_of(self, node: NodeId) -> tuple[Account, ...]:
        """Return the accounts that have certified a node's key."""
        return tuple(self._accounts.get(node, ()))

    def _open(self, data: bytes, now_seconds: float, *, is_stored: bool) -> Certificate:
        """Return the certificate in a message.

        Args:
            is_stored: it was admitted before, so it may become valid later.

        Raises:
            RemoteProtocolError: it is not valid, or not now.
        """
        envelope = parse_envelope(data, self._manifest.swarm_id)
        certificate = open_certificate(envelope, self._manifest.binding_domain)
        is_early = is_stored and now_seconds < certificate.not_before_seconds
        if not (is_early or certificate.covers(now_seconds)):
            raise RemoteProtocolError(Rule.CERTIFICATE_COUNTS, "the certificate is not valid now")
        return certificate

    def _insert(self, certificate: Certificate, data: bytes, now_seconds: float) -> None:
        key = (certificate.node, certificate.account)
        known = self._entries[key].certificate if key in self._entries else None
        # A certificate that is not valid now was made or admitted under a wrong clock: any other replaces it.
        counts = known is not None and known.covers(now_seconds)
        if (
            known
            and counts
            and known.not_after_seconds + MIN_EXTENSION_SECONDS > certificate.not_after_seconds
        ):
            raise RemoteProtocolError(Rule.CERTIFICATE_NEW, "the certificate is known")
        has_signed = key in self._have_signed
        if known is not None:
            self._delete(key)
        siblings = self._nodes.get(certificate.account, {})
        if len(siblings) >= MAX_NODES_PER_ACCOUNT:
            self._displace((next(iter(siblings)), certificate.account))
        self._keep(key, Entry(certificate, data))
        if has_signed:
            self._have_signed.add(key)
        if len(self._entries) > self._max_certificates:
            self._drop_one(certificate.account)

    def _is_needed(self, account: Account) -> bool:
        return account == self._own or account in self.standing.exempt or not self._is_newcomer(account)

    def _drop_one(self, newest: Account) -> None:
        """Drop a certificate, but never the newest, for which messages may be waiting.

        A newcomer's is dropped first, in the order of ``DropOrder``, then the oldest one of another account.
        """
        account = self._order.take(lambda other: other != newest and other in self._nodes)
        if account is not None:
            self._displace((next(iter(self._nodes[account])), account))
            if account in self._nodes:
                self._order.add(account)
            return
        spared = {newest, self._own}
        oldest = next((key for key in self._entries if key[1] not in spared), None)
        if oldest is not None:
            self._displace(oldest)

    def _displace(self, key: tuple[NodeId, Account]) -> None:
        """Drop a certificate for another one; what proofs may need of it is kept."""
        if key in self._have_signed:
            self._displaced.keep(key, self._entries[key])
        self._delete(key)

    def _keep(self, key: tuple[NodeId, Account], entry: Entry) -> None:
        node, account = key
        self._entries[key] = entry
        if self._displaced.forget(key):
            self._have_signed.add(key)
        self._nodes.setdefault(account, {})[node] = None
        self._accounts.setdefault(node, {})[account] = None
        self._order.add(account)
        self._connection.execute(
            "INSERT OR REPLACE INTO certificate VALUES (?, ?, ?)", (*key, entry.envelope)
        )

    def _delete(self, key: tuple[NodeId, Account]) -> None:
        node, account = key
        self._have_signed.discard(key)
        if self._entries.pop(key, None) is not None:
            _discard(self._nodes, account, node)
            _discard(self._accounts, node, account)
        self._connection.execute("DELETE FROM certificate WHERE node = ? AND account = ?", key)


def _discard(index: dict[_Key, dict[_Item, None]], key: _Key, item: _Item) -> None:
    """Remove an item from an index, and its key once it has none."""
    del index[key][item]
    if not index[key]:
        del index[key]


def stored_certificates(path: Path) -> list[tuple[NodeId, Account, bytes]]:
    """Return the certificates in a node's database, none of them validated; the file stays as it is."""
    with closing(open_for_reading(path, _SCHEMA)) as connection:
        return _rows(connection)


def _rows(connection: sqlite3.Connection) -> list[tuple[NodeId, Account, bytes]]:
    rows = connection.execute("SELECT node, account, envelope FROM certificate").fetchall()
    return [(NodeId(node), Account(account), bytes(envelope)) for node, account, envelope in rows]
