"""The tree over the content ids that an account commits to, in the order of their slots.

Leaf = SHA-256(0x02, content id), branch = SHA-256(0x03, left, right); an odd one is promoted unchanged.
A path binds its leaf to one place: with sorted pairs, as in the plain tree, one good group could answer every
draw.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from sapo_protocol.identifiers import ContentId, Digest

MOST_LEVELS: Final = 16
"""Above the leaves of 65,536 slots."""


class ContentTree:
    """The tree over at least one content id."""

    def __init__(self, contents: Sequence[ContentId]) -> None:
        self.contents: Final = tuple(contents)
        self._levels = [[_leaf(content) for content in contents]]
        while len(below := self._levels[-1]) > 1:
            pairs = [_branch(a, b) for a, b in zip(below[::2], below[1::2], strict=False)]
            self._levels.append(pairs + below[2 * len(pairs) :])

    @property
    def root(self) -> Digest:
        """The word over all of them."""
        return self._levels[-1][0]

    def path(self, place: int) -> tuple[Digest, ...]:
        """Return the words beside the way from a place to the root, from the leaf upwards."""
        beside = []
        for level in self._levels[:-1]:
            if (sibling := place ^ 1) < len(level):
                beside.append(level[sibling])
            place //= 2
        return tuple(beside)


def leads_to(root: Digest, content: ContentId, place: int, count: int, path: Sequence[Digest]) -> bool:
    """Whether a path leads from a content id at a place, of so many, to the root."""
    word, words = _leaf(content), iter(path)
    while count > 1:
        if place ^ 1 < count:
            if (beside := next(words, None)) is None:
                return False
            word = _branch(beside, word) if place & 1 else _branch(word, beside)
        place, count = place // 2, (count + 1) // 2
    return word == root and next(words, None) is None


def _leaf(content: ContentId) -> Digest:
    return Digest(sha256(b"\x02" + content).digest())


def _branch(left: Digest, right: Digest) -> Digest:
    return Digest(sha256(b"\x03" + left + right).digest())
