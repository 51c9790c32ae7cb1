"""The two Merkle trees: the sum tree over points, which the contracts compute too, and the plain tree.

The **sum tree** is a Merkle sum tree keyed by account. A node is 32 bytes: the first 24 bytes of a Keccak-256
hash, then the sum of all values below it as 8 bytes, big-endian. A subtree of no account is 32 zero bytes. A
subtree of one account is its leaf, hashed over account (20 bytes) and value (8 bytes). Any larger subtree is
hashed over its left and right child (64 bytes): on each level the next bit of the account, the most
significant one first, sends it to the left (0) or to the right (1). An account has thus one possible leaf
under a root, and a proof of its value also proves every sum on its path.

The **plain tree** roots the contents that a tally counts, and the points of a ledger of version 0.1.0.
Leaf = SHA-256(0x00, account, value as uint256), node = SHA-256(0x01, smaller child, larger child). The
prefixes keep a node from passing as a leaf; because pairs are sorted, a proof needs no index. An odd node is
promoted unchanged.

The root over no entries is 32 zero bytes in both trees.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from eth_hash.auto import keccak

from sapo_protocol.identifiers import Account, Digest

EMPTY_ROOT = Digest(bytes(32))

Entries = Sequence[tuple[Account, int]]
"""Accounts and values, ascending by account, values from 1 on (below 2**64 in a sum tree)."""

RootOf = Callable[[Entries], Digest]
"""Root function of a ledger's tree: ``sum_root``, or ``plain_root`` on a ledger of version 0.1.0."""

_HASH_BYTES = 24
_SUM_BYTES = 8
_SUM_MASK = 2 ** (8 * _SUM_BYTES) - 1
_BITS = 8 * Account.SIZE
_NOBODY = Account(bytes(Account.SIZE))
_KEPT_ENTRIES = 64
"""Subtrees of at least this many entries are kept; smaller ones are hashed again when they are needed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Proof of an account's value in a sum tree, or of its absence (struct ``Place`` of the contracts).

    The path of the account ends at a leaf, its own or another account's, or at an empty subtree.

    Attributes:
        holder: account of that leaf; the zero address for an empty subtree.
        value: value of that leaf; 0 for an empty subtree.
        proof: sibling nodes on the path, from its end up to the root.
    """

    holder: Account
    value: int
    proof: tuple[Digest, ...]


def leaf(account: Account, value: int) -> Digest:
    """Return the plain tree's leaf of an account and its value."""
    return Digest(sha256(b"\x00" + account + value.to_bytes(32, "big")).digest())


def root(leaves: Sequence[Digest]) -> Digest:
    """Return the plain tree's root over leaves in ascending order of their accounts."""
    level = list(leaves)
    while len(level) > 1:
        level = _parents(level)
    return level[0] if level else EMPTY_ROOT


def proof(leaves: Sequence[Digest], index: int) -> tuple[Digest, ...]:
    """Return the siblings on the path from a leaf to the plain tree's root, leaf level first."""
    level, siblings = list(leaves), []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            siblings.append(level[sibling])
        level, index = _parents(level), index // 2
    return tuple(siblings)


def verify(root: Digest, leaf: Digest, proof: Iterable[Digest]) -> bool:
    """Whether a proof shows that a leaf belongs to the plain tree with this root."""
    node = leaf
    for sibling in proof:
        node = _parent(node, sibling)
    return node == root


def _parents(level: Sequence[Digest]) -> list[Digest]:
    pairs = [_parent(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
    return pairs + list(level[len(pairs) * 2 :])


def _parent(a: Digest, b: Digest) -> Digest:
    return Digest(sha256(b"\x01" + min(a, b) + max(a, b)).digest())


def plain_root(entries: Entries) -> Digest:
    """Return the plain tree's root over accounts and values."""
    return root([leaf(account, value) for account, value in entries])


def sum_leaf(account: Account, value: int) -> Digest:
    """Return the sum tree's leaf of an account and its points, which are below 2**64."""
    return Digest(_leaf_node(account, value))


def sum_root(entries: Entries) -> Digest:
    """Return the sum tree's root."""
    return SumTree(entries).root()


def sum_place(entries: Entries, account: Account) -> Place:
    """Return the proof of an account's value in the sum tree, or of its absence if it has no entry."""
    return SumTree(entries).place(account)


def place_root(account: Account, place: Place) -> Digest:
    """Return the root that the proof of an account's value or absence computes to."""
    node = EMPTY_ROOT if place.holder == _NOBODY else sum_leaf(place.holder, place.value)
    bits = int.from_bytes(account, "big") >> (_BITS - len(place.proof))
    for sibling in place.proof:
        left, right = (sibling, node) if bits & 1 else (node, sibling)
        node, bits = Digest(_parent_node(left, right, sum_of(left) + sum_of(right))), bits >> 1
    return node


def sum_of(root: Digest) -> int:
    """Return the sum of all values below a node of the sum tree: its last 8 bytes."""
    return int.from_bytes(root[_HASH_BYTES:], "big")


def _leaf_node(account: Account, value: int) -> bytes:
    total = value.to_bytes(_SUM_BYTES, "big")
    return keccak(account + total)[:_HASH_BYTES] + total


def _parent_node(left: bytes, right: bytes, total: int) -> bytes:
    """Return the node above two children, from the sum of both.

    The contracts refuse a sum of more than 64 bits; the node then ends with its low 64 bits.
    """
    suffix: bytes = (total & _SUM_MASK).to_bytes(_SUM_BYTES, "big")
    return keccak(left + right)[:_HASH_BYTES] + suffix


class SumTree:
    """The sum tree over entries.

    The nodes of large subtrees are kept, so that every proof after the first one, or after the root, costs a
    few dozen hashes.
    """

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self._numbers = [int.from_bytes(account, "big") for account, _ in entries]
        self._kept: dict[tuple[int, int, int], tuple[bytes, int]] = {}

    def root(self) -> Digest:
        """Return the root."""
        return Digest(self._node(0, len(self.entries), _BITS - 1)[0])

    def place(self, account: Account) -> Place:
        """Return the proof of an account's value, or of its absence if it has no entry."""
        number = int.from_bytes(account, "big")
        low, high, unit = 0, len(self.entries), _BITS - 1
        siblings: list[Digest] = []
        while high - low > 1:
            middle = self._middle(low, high, unit)
            left, right = (low, middle), (middle, high)
            (low, high), other = (right, left) if number >> unit & 1 else (left, right)
            unit -= 1
            siblings.append(Digest(self._node(*other, unit)[0]))
        holder, value = self.entries[low] if low < high else (_NOBODY, 0)
        return Place(holder, value, tuple(reversed(siblings)))

    def _middle(self, low: int, high: int, unit: int) -> int:
        """Return the index in a non-empty range at which the accounts of the right child begin."""
        return bisect_left(self._numbers, (self._numbers[low] >> unit | 1) << unit, low, high)

    def _node(self, low: int, high: int, unit: int) -> tuple[bytes, int]:
        """Return node and sum of the entries from ``low`` to ``high``, which share all bits above
        ``unit``."""
        if high - low < _KEPT_ENTRIES:
            return self._hashed(low, high, unit)
        key = low, high, unit
        if key not in self._kept:
            self._kept[key] = self._hashed(low, high, unit)
        return self._kept[key]

    def _hashed(self, low: int, high: int, unit: int) -> tuple[bytes, int]:
        """Compute what ``_node`` returns."""
        if high - low == 1:
            account, value = self.entries[low]
            return _leaf_node(account, value), value
        if high == low:
            return EMPTY_ROOT, 0
        middle = self._middle(low, high, unit)
        left, left_sum = self._node(low, middle, unit - 1)
        right, right_sum = self._node(middle, high, unit - 1)
        total = left_sum + right_sum
        return _parent_node(left, right, total), total
