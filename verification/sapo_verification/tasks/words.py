"""Splitting of text into words, equal on every node; stages 9, 11 and 13 compare these.

Unicode's definitions of letters, spaces and case change between releases, so only ASCII is folded, and every
character beyond ASCII is a word of its own, which also suits scripts that are written without spaces.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from string import ascii_lowercase, ascii_uppercase
from typing import Final

_WORD: Final = re.compile(r"[0-9a-z]+|[^\x00-\x7f]")
_FOLDED: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_MASK: Final = 2**64 - 1


def words_of(text: str) -> list[str]:
    """Return the words of a text without case, punctuation and spacing; linear in its length."""
    return _WORD.findall(text.translate(_FOLDED))


def is_prose(word: str) -> bool:
    """Whether a word is anything else than ASCII digits."""
    return not word.isdigit() or not word.isascii()


def prose_windows(words: Sequence[str], size: int) -> Iterator[int]:
    """Yield the start of every run of ``size`` words that are not all digits: grids and sums are data."""
    last = -1
    for place, word in enumerate(words):
        if is_prose(word):
            last = place
        start = place - size + 1
        if start >= 0 and last >= start:
            yield start


def window_hashes(words: Sequence[str], size: int, key: bytes) -> dict[int, tuple[int, ...]]:
    """Return a keyed 64-bit hash of each different run of prose, with the hashes of the run's words.

    Without the key no value can be targeted.
    """
    known = word_hashes(words, key)
    hashes = [known[word] for word in words]
    runs = (tuple(hashes[at : at + size]) for at in prose_windows(words, size))
    return {hash(run) & _MASK: run for run in runs}


def word_hashes(words: Iterable[str], key: bytes) -> dict[str, int]:
    """Return a keyed 64-bit hash of each different word."""
    return {word: _hash(word, key) for word in set(words)}


def _hash(word: str, key: bytes) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8, key=key).digest(), "big")
