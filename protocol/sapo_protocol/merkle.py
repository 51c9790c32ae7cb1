"""The Merkle tree over (account, value), the same rule as the contracts'.

Leaf = SHA-256(0x00, account, value as uint256), node = SHA-256(0x01, smaller, larger).
The prefixes keep a node from passing as a leaf; sorting the pair frees proofs from positions.
An odd node is promoted unchanged; no leaves at all have the root of 32 zero bytes.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from sapo_protocol.identifiers import Account, Digest

EMPTY_ROOT = Digest(bytes(32))


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
