"""Hypothesis strategies for wire values and for every object that is sealed."""

from typing import TypeVar

from hypothesis import strategies as st

from sapo_protocol.certificate import Certificate
from sapo_protocol.constants import (
    MAX_CERTIFICATE_SECONDS,
    MAX_COMPLETIONS,
    MAX_FAMILIES,
    MAX_UINT64,
)
from sapo_protocol.contributions import Approval, Proposal, Share, Tally
from sapo_protocol.decoding import Value
from sapo_protocol.identifiers import Account, ContentId, Digest, FixedBytes, NodeId
from sapo_protocol.rollout import Rollout

T = TypeVar("T", bound=FixedBytes)

uint64 = st.one_of(
    st.sampled_from([0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, MAX_UINT64]),
    st.integers(0, MAX_UINT64),
)


def fixed(type_: type[T]) -> st.SearchStrategy[T]:
    """Generate any value of a fixed-size type."""
    return st.binary(min_size=type_.SIZE, max_size=type_.SIZE).map(type_)


def values(depth: int = 4) -> st.SearchStrategy[Value]:
    """Generate any value of the wire format, at most ``depth`` levels deep."""
    flat = st.one_of(uint64, st.binary(max_size=40), st.text(max_size=20))
    if depth == 0:
        return flat
    inner = values(depth - 1)
    arrays = st.lists(inner, max_size=4).map(tuple)
    return st.one_of(flat, arrays, st.dictionaries(uint64, inner, max_size=4))


def ascending(type_: type[T], most: int) -> st.SearchStrategy[list[T]]:
    """Generate distinct fixed-size values in ascending order."""
    return st.lists(fixed(type_), unique=True, max_size=most).map(sorted)


rollouts = st.builds(
    Rollout,
    node=fixed(NodeId),
    account=fixed(Account),
    epoch=uint64,
    slot=st.integers(0, 2**32 - 1),
    family=st.integers(0, MAX_FAMILIES - 1),
    completions=st.lists(st.text(max_size=30).map(str.encode), min_size=1, max_size=MAX_COMPLETIONS).map(
        tuple
    ),
    policy_tag=st.none() | fixed(Digest),
)


@st.composite
def certificates(draw: st.DrawFn) -> Certificate:
    """Generate any certificate, without a genuine account's signature."""
    length = draw(st.integers(1, MAX_CERTIFICATE_SECONDS))
    start = draw(st.integers(0, MAX_UINT64 - length))
    signature = draw(st.binary(min_size=65, max_size=65))
    return Certificate(
        node=draw(fixed(NodeId)),
        account=draw(fixed(Account)),
        not_before_seconds=start,
        not_after_seconds=start + length,
        account_signature=signature,
    )


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    """Generate any tally."""
    points = tuple((account, draw(uint64)) for account in draw(ascending(Account, 5)))
    return Tally(
        node=draw(fixed(NodeId)),
        account=draw(fixed(Account)),
        epoch=draw(uint64),
        points=points,
        evidence_root=draw(fixed(Digest)),
    )


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Generate any proposal."""
    shares = tuple(Share(a, draw(uint64), draw(uint64)) for a in draw(ascending(Account, 5)))
    ids = tuple(draw(ascending(ContentId, 4).filter(bool)))
    return Proposal(
        node=draw(fixed(NodeId)), account=draw(fixed(Account)), epoch=draw(uint64), tallies=ids, shares=shares
    )


approvals = st.builds(
    Approval,
    node=fixed(NodeId),
    account=fixed(Account),
    epoch=uint64,
    proposal=fixed(ContentId),
    signature=st.binary(min_size=65, max_size=65),
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Generate the bytes after one edit: a bit flipped, a span cut, doubled, replaced or inserted."""
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    edit = draw(st.sampled_from(["flip", "cut", "double", "replace", "truncate"]))
    if edit == "flip" and data:
        at = min(start, len(data) - 1)
        return data[:at] + bytes((data[at] ^ 1 << draw(st.integers(0, 7)),)) + data[at + 1 :]
    middle = {
        "cut": b"",
        "double": data[start:end] * 2,
        "replace": draw(st.binary(max_size=12)),
        "truncate": data[start:end],
    }
    return data[:start] if edit == "truncate" else data[:start] + middle.get(edit, b"") + data[end:]


def bit_flips(data: bytes) -> list[bytes]:
    """Return all variants of the bytes with one bit flipped."""
    return [
        data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]
