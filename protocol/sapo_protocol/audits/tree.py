"""Merkle tree over the content ids that an account commits to, in the order of their slots.

Leaf = SHA-256(0x02, content id), branch = SHA-256(0x03, left, right); an odd node is promoted unchanged.
Pairs are not sorted, so a path proves one index only. With sorted pairs, as in the plain tree of ``merkle``,
one good group could be presented for every slot that is drawn.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from sapo_protocol.identifiers import ContentId, Digest

MAX_LEVELS: Final = 16
"""Levels above the leaves in a tree over 65,536 slots, the largest commitment: no path is longer."""


class ContentTree:
    """Merkle tree over at least one content id."""

    def __init__(self, contents: Sequence[ContentId]) -> None:
        self.contents: Final = tuple(contents)
        self._levels = [[_leaf(content) for content in contents]]
        while len(below := self._levels[-1]) > 1:
            pairs = [_branch(a, b) for a, b in zip(below[::2], below[1::2], strict=False)]
            self._levels.append(pairs + below[2 * len(pairs) :])

    @property
    def root(self) -> Digest:
        """The root hash."""
        return self._levels[-1][0]

    def path(self, index: int) -> tuple[Digest, ...]:
        """Return the sibling hashes on the path from the leaf at an index to the root, leaf level first.

        A level on which the path's node has no sibling is left out.
        """
        siblings = []
        for level in self._levels[:-1]:
            if (sibling := index ^ 1) < len(level):
                siblings.append(level[sibling])
            index //= 2
        return tuple(siblings)


def is_path_valid(root: Digest, content: ContentId, index: int, count: int, path: Sequence[Digest]) -> bool:
    """Whether a path proves that a content id is the leaf at an index of the tree with this root.

    Args:
        count: number of leaves of the tree.
        path: sibling hashes, as ``ContentTree.path`` returns them.
    """
    node, siblings = _leaf(content), iter(path)
    while count > 1:
        if index ^ 1 < count:
            if (sibling := next(siblings, None)) is None:
                return False
            node = _branch(sibling, node) if index & 1 else _branch(node, sibling)
        index, count = index // 2, (count + 1) // 2
    return node == root and next(siblings, None) is None


def _leaf(content: ContentId) -> Digest:
    return Digest(sha256(b"\x02" + content).digest())


def _branch(left: Digest, right: Digest) -> Digest:
    return Digest(sha256(b"\x03" + left + right).digest())
