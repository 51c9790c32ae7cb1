"""The two Merkle trees: the tree of points, which is the contracts' rule too, and the plain tree.

In the **tree of points** every account has one place, and every word ends with its sum. At the root and at
every node below it, accounts with a 0 in the next bit are on the left, those with a 1 on the right. A part of
one account is its leaf, a part of none the word zero. A word holds the first 24 bytes of a Keccak-256 and the
sum of all values below it in 8: a leaf's hash is over account and value, a node's over the words on its left
and right. An account's bits are the way to its place: under one root it has one value, and whoever follows
the way adds up every sum. One account's place proves what a list of all would otherwise have to.

The **plain tree** roots the contents that a tally counts, and the points of a ledger of version 0.1.0.
Leaf = SHA-256(0x00, account, value as uint256), node = SHA-256(0x01, smaller, larger).
The prefixes keep a node from passing as a leaf; sorting the pair frees proofs from positions.
An odd node is promoted unchanged. No leaves at all have the root of 32 zero bytes in both trees.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from eth_hash.auto import keccak

from sapo_protocol.identifiers import Account, Digest

EMPTY_ROOT = Digest(bytes(32))

Entries = Sequence[tuple[Account, int]]
"""Accounts and values, ascending by account; none of the values is 0."""

RootOf = Callable[[Entries], Digest]
"""The tree of a ledger: ``sum_root``, or ``plain_root`` on one of version 0.1.0."""

_HASH_BYTES = 24
_SUM_BYTES = 8
_SUM_MASK = 2 ** (8 * _SUM_BYTES) - 1
_BITS = 8 * Account.SIZE
_NOBODY = Account(bytes(Account.SIZE))
_KEPT_ENTRIES = 64
"""A part with so many entries is hashed once; smaller ones are hashed again rather than kept."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the path of an account ends in a tree of points.

    Attributes:
        holder: whose leaf is there; zero where none is.
        value: the leaf's value; 0 where none is.
        proof: the words beside the path, from its end upwards.
    """

    holder: Account
    value: int
    proof: tuple[Digest, ...]


def leaf(account: Account, value: int) -> Digest:
    """Return the leaf of an account's value."""
    return Digest(sha256(b"\x00" + account + value.to_bytes(32, "big")).digest())


def root(leaves: Sequence[Digest]) -> Digest:
    """Return the root over leaves in the order of their accounts."""
    level = list(leaves)
    while len(level) > 1:
        level = _parents(level)
    return level[0] if level else EMPTY_ROOT


def proof(leaves: Sequence[Digest], index: int) -> tuple[Digest, ...]:
    """Return the siblings on the way from a leaf to the root."""
    level, siblings = list(leaves), []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            siblings.append(level[sibling])
        level, index = _parents(level), index // 2
    return tuple(siblings)


def verify(root: Digest, leaf: Digest, proof: Iterable[Digest]) -> bool:
    """Whether a proof leads from a leaf to the root."""
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
    """Return the plain root of accounts and values."""
    return root([leaf(account, value) for account, value in entries])


def sum_leaf(account: Account, value: int) -> Digest:
    """Return the leaf of an account's points, which are below 2**64."""
    return Digest(_leaf_word(account, value))


def sum_root(entries: Entries) -> Digest:
    """Return the root of the tree of points."""
    return SumTree(entries).root()


def sum_place(entries: Entries, account: Account) -> Place:
    """Return the place of an account; if it is not among the entries, that of its absence."""
    return SumTree(entries).place(account)


def place_root(account: Account, place: Place) -> Digest:
    """Return the root that an account's place leads to."""
    word = EMPTY_ROOT if place.holder == _NOBODY else sum_leaf(place.holder, place.value)
    bits = int.from_bytes(account, "big") >> (_BITS - len(place.proof))
    for beside in place.proof:
        left, right = (beside, word) if bits & 1 else (word, beside)
        word, bits = Digest(_node_word(left, right, sum_of(left) + sum_of(right))), bits >> 1
    return word


def sum_of(root: Digest) -> int:
    """Return the sum that a root of the tree of points ends with."""
    return int.from_bytes(root[_HASH_BYTES:], "big")


def _leaf_word(account: Account, value: int) -> bytes:
    written = value.to_bytes(_SUM_BYTES, "big")
    return keccak(account + written)[:_HASH_BYTES] + written


def _node_word(left: bytes, right: bytes, total: int) -> bytes:
    """Return the word over two others and their sum.

    A sum of more than 64 bits is no sum to the contracts; the word then ends with its last 64.
    """
    written: bytes = (total & _SUM_MASK).to_bytes(_SUM_BYTES, "big")
    return keccak(left + right)[:_HASH_BYTES] + written


class SumTree:
    """The tree of points over entries.

    The words over large parts are kept, so that every place after the first one, or after the root, costs a
    few dozen hashes.
    """

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self._numbers = [int.from_bytes(account, "big") for account, _ in entries]
        self._kept: dict[tuple[int, int, int], tuple[bytes, int]] = {}

    def root(self) -> Digest:
        """Return the root."""
        return Digest(self._word(0, len(self.entries), _BITS - 1)[0])

    def place(self, account: Account) -> Place:
        """Return the place of an account; if it is not among the entries, that of its absence."""
        number = int.from_bytes(account, "big")
        low, high, unit = 0, len(self.entries), _BITS - 1
        siblings: list[Digest] = []
        while high - low > 1:
            middle = self._middle(low, high, unit)
            left, right = (low, middle), (middle, high)
            (low, high), other = (right, left) if number >> unit & 1 else (left, right)
            unit -= 1
            siblings.append(Digest(self._word(*other, unit)[0]))
        holder, value = self.entries[low] if low < high else (_NOBODY, 0)
        return Place(holder, value, tuple(reversed(siblings)))

    def _middle(self, low: int, high: int, unit: int) -> int:
        """Return where in a range, which is not empty, the accounts begin that are on the right."""
        return bisect_left(self._numbers, (self._numbers[low] >> unit | 1) << unit, low, high)

    def _word(self, low: int, high: int, unit: int) -> tuple[bytes, int]:
        """Return word and sum over a range of entries that share all bits above one."""
        if high - low < _KEPT_ENTRIES:
            return self._hashed(low, high, unit)
        key = low, high, unit
        if key not in self._kept:
            self._kept[key] = self._hashed(low, high, unit)
        return self._kept[key]

    def _hashed(self, low: int, high: int, unit: int) -> tuple[bytes, int]:
        """Return word and sum."""
        if high - low == 1:
            account, value = self.entries[low]
            return _leaf_word(account, value), value
        if high == low:
            return EMPTY_ROOT, 0
        middle = self._middle(low, high, unit)
        left, left_sum = self._word(low, middle, unit - 1)
        right, right_sum = self._word(middle, high, unit - 1)
        total = left_sum + right_sum
        return _node_word(left, right, total), total
