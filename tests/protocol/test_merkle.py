"""Merkle trees: every leaf proves, nothing else does."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed

from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, Digest

values = st.integers(0, 2**256 - 1)
trees = st.dictionaries(fixed(Account), values, min_size=1, max_size=40).map(
    lambda entries: [merkle.leaf(account, entries[account]) for account in sorted(entries)]
)


@given(trees)
def test_every_leaf_proves(leaves: list[Digest]) -> None:
    root = merkle.root(leaves)
    proofs = [merkle.proof(leaves, index) for index in range(len(leaves))]
    assert all(merkle.verify(root, leaf, proof) for leaf, proof in zip(leaves, proofs, strict=True))
    assert max(map(len, proofs)) == (len(leaves) - 1).bit_length()


@given(trees, st.data())
def test_an_altered_leaf_or_proof_fails(leaves: list[Digest], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    root, proof = merkle.root(leaves), list(merkle.proof(leaves, index))
    place = data.draw(st.integers(0, len(proof)))
    chain = [leaves[index], *proof]
    chain[place] = Digest(bytes((chain[place][0] ^ 1 << data.draw(st.integers(0, 7)),)) + chain[place][1:])
    assert not merkle.verify(root, chain[0], chain[1:])
    assert not merkle.verify(root, leaves[index], [*proof, root])
    assert not proof or not merkle.verify(root, leaves[index], proof[:-1])


@given(fixed(Account), values, fixed(Account), values)
def test_a_leaf_belongs_to_one_account_and_value(a: Account, x: int, b: Account, y: int) -> None:
    assert (merkle.leaf(a, x) == merkle.leaf(b, y)) == ((a, x) == (b, y))


@given(trees.filter(lambda leaves: len(leaves) > 1))
def test_a_node_cannot_pass_as_a_leaf(leaves: list[Digest]) -> None:
    """A leaf hashes 53 bytes behind 0x00, a node 65 behind 0x01: no account and value hash to a node."""
    pair = min(leaves[:2]), max(leaves[:2])
    node = Digest(sha256(b"\x01" + b"".join(pair)).digest())
    assert merkle.root(leaves[:2]) == node
    assert sha256(b"\x00" + b"".join(pair)).digest() != node
    assert merkle.leaf(Account(pair[0][:20]), int.from_bytes((pair[0] + pair[1])[20:52], "big")) != node


def test_roots_of_a_worked_example() -> None:
    leaves = [merkle.leaf(Account(bytes(19) + bytes((n,))), n) for n in (1, 2, 3)]
    assert leaves[0] == sha256(b"\x00" + bytes(19) + b"\x01" + bytes(31) + b"\x01").digest()
    pair = sha256(b"\x01" + min(leaves[:2]) + max(leaves[:2])).digest()
    assert merkle.root(leaves) == sha256(b"\x01" + min(pair, leaves[2]) + max(pair, leaves[2])).digest()
    assert merkle.proof(leaves, 2) == (pair,), "the odd leaf was promoted, its only sibling is the pair"
    assert merkle.root(leaves[:1]) == leaves[0]
    assert merkle.root([]) == merkle.EMPTY_ROOT == bytes(32)


def test_no_negative_value_and_none_beyond_a_word() -> None:
    for value in (-1, 2**256):
        with pytest.raises(OverflowError):
            merkle.leaf(Account(bytes(20)), value)


class _CountedEntries(Sequence[tuple[Account, int]]):
    """Entries that count how often one is read: every leaf that is hashed is read."""

    def __init__(self, entries: Sequence[tuple[Account, int]]) -> None:
        self.reads, self._entries = 0, entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> tuple[Account, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Account, int]]: ...
    def __getitem__(self, index: int | slice) -> object:
        self.reads += 1
        return self._entries[index]


def _spread(count: int) -> list[tuple[Account, int]]:
    return sorted((Account(sha256(b"%d" % number).digest()[:20]), 1 + number) for number in range(count))


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 300])
def test_a_tree_with_stored_hashes_has_the_same_places_as_one_without(count: int) -> None:
    entries = _spread(count)
    tree = merkle.SumTree(entries)
    strangers = [Account(bytes(20)), Account(b"\xff" * 20), Account(b"\x80" + bytes(19))]
    for account in (*(account for account, _ in entries), *strangers):
        assert tree.place(account) == merkle.sum_place(entries, account)
    assert tree.root() == merkle.sum_root(entries)


def test_places_after_the_first_one_hash_few_leaves() -> None:
    """A node answers every question about a posting: it hashed all 100,000 leaves again for each."""
    entries = _CountedEntries(_spread(5000))
    tree = merkle.SumTree(entries)
    tree.root()
    before = entries.reads
    for account, _ in _spread(50):
        tree.place(account)
    assert (entries.reads - before) / 50 < 150


@pytest.mark.parametrize("count", [0, 1, 2, 3, 300])
def test_a_place_leads_to_the_root_of_its_tree(count: int) -> None:
    entries = _spread(count)
    root = merkle.sum_root(entries)
    strangers = [Account(bytes(20)), Account(b"\xff" * 20), Account(b"\x80" + bytes(19))]
    for account in (*(account for account, _ in entries[:20]), *strangers):
        place = merkle.sum_place(entries, account)
        assert merkle.place_root(account, place) == root
        if place.value:
            assert merkle.place_root(account, replace(place, value=place.value + 1)) != root
        if place.proof:
            turned = Account(bytes((account[0] ^ 0x80, *account[1:])))
            assert merkle.place_root(turned, place) != root
