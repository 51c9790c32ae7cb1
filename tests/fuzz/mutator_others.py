"""Contributions and proofs of equivocation, in order and out of it; see ``mutator.py``."""

from collections.abc import Callable
from typing import Any

from fuzz.mutator import AUTHORS, NUMBERS, Mutator
from vectors.raw import cbor
from vectors.world import CHAINED, PLAIN, Identity, frame

from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.errors import RemoteProtocolError

KINDS = (Kind.TALLY, Kind.PROPOSAL, Kind.APPROVAL)


def _fields(m: Mutator, kind: Kind, author: Identity) -> dict[int, Any]:
    """Return a valid contribution."""
    accounts = sorted(m.random.randbytes(20) for _ in range(m.random.randrange(4)))
    numbers = [m.random.choice(NUMBERS) for _ in accounts]
    rest: dict[Kind, tuple[Any, Any]] = {
        Kind.TALLY: ([[a, n] for a, n in zip(accounts, numbers, strict=True)], m.random.randbytes(32)),
        Kind.PROPOSAL: (
            sorted(m.random.randbytes(32) for _ in range(m.random.randint(1, 3))),
            [[a, n, n] for a, n in zip(accounts, numbers, strict=True)],
        ),
        Kind.APPROVAL: (m.random.randbytes(32), m.random.randbytes(65)),
    }
    third, fourth = rest[kind]
    epoch = m.random.choice((0, 1, 2, 2, 2, 3))
    return {0: bytes(author.node), 1: bytes(author.account), 2: epoch, 3: third, 4: fourth}


def _contribution(m: Mutator) -> bytes:
    author, kind = m.author(), m.random.choice(KINDS)
    return cbor(m.seal(author, cbor(_fields(m, kind, author)), kind))


def _edited(m: Mutator) -> bytes:
    """Return a field of a contribution, or an item of its lists, replaced, under a genuine signature."""
    author, kind = m.author(), m.random.choice(KINDS)
    fields = _fields(m, kind, author)
    key = m.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 23, 24))
    if isinstance(fields.get(key), list) and fields[key] and m.random.random() < 0.7:
        _edit_item(m, fields[key])
    elif key in fields and m.random.random() < 0.2:
        del fields[key]
    else:
        fields[key] = m.value()
    return cbor(m.seal(author, cbor(dict(sorted(fields.items()))), kind))


def _edit_item(m: Mutator, items: list[Any]) -> None:
    at = m.random.randrange(len(items))
    match m.random.randrange(4):
        case 0:
            items[at] = m.value()
        case 1:
            items.reverse()
        case 2:
            items.append(items[at])
        case 3 if isinstance(items[at], list):
            items[at][m.random.randrange(len(items[at]))] = m.value()


def _relabelled(m: Mutator) -> bytes:
    """Return a contribution as another kind, of another swarm, or with a bit flipped."""
    data = bytearray(_contribution(m))
    match m.random.randrange(3):
        case 0:
            data[4] = m.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 23))
        case 1:
            data[8:40] = CHAINED.swarm_id
        case 2:
            data[m.random.randrange(len(data))] ^= 1 << m.random.randrange(8)
    return bytes(data)


def _pair(m: Mutator) -> list[bytes]:
    """Return two contents for one slot, in their order."""
    author = m.author()
    fields = m.fields(author) | {2: m.random.randrange(4)}
    second = {**fields, 5: [m.random.randbytes(4).hex().encode()]}
    return _ordered([cbor(m.seal(author, cbor(each))) for each in (fields, second)])


def _ordered(messages: list[bytes]) -> list[bytes]:
    """Return messages by content id, as far as they have one."""
    try:
        return sorted(messages, key=lambda data: parse_envelope(data, PLAIN.swarm_id).content_id)
    except RemoteProtocolError:
        return messages


def _framed(messages: list[Any], **changes: Any) -> bytes:
    return frame(PLAIN, **{"kind": 6, "payload": cbor(dict(enumerate(messages)))} | changes)


def _proof(m: Mutator) -> bytes:
    return _framed(_pair(m))


def _proof_edited(m: Mutator) -> bytes:
    """Exchange one of the two messages for one that was received, for noise, or for any value."""
    pair: list[Any] = list(_pair(m))
    stranger = m.recent[-1] if m.recent else m.genuine()
    pair[m.random.randrange(2)] = m.random.choice((stranger, m.random.randbytes(4), m.value(), m.genuine()))
    if all(isinstance(message, bytes) for message in pair):
        pair = _ordered(pair)
    return _framed(pair)


def _proof_bent(m: Mutator) -> bytes:
    """Return a proof broken in one way: order, repetition, a third message, a signature, a flipped bit."""
    pair = _pair(m)
    spoiled = pair[0][:-1] + bytes((pair[0][-1] ^ 1,))
    data = bytearray(_framed(pair))
    data[m.random.randrange(len(data))] ^= 1 << m.random.randrange(8)
    return m.random.choice(
        (
            _framed(pair[::-1]),
            _framed([pair[0], pair[0]]),
            _framed([*pair, pair[0]]),
            _framed(pair, signature=pair[0][-64:]),
            _framed([spoiled, pair[1]]),
            bytes(data),
        )
    )


OTHERS: dict[str, tuple[str, Callable[[Mutator], bytes]]] = {
    "contribution": ("contributions", _contribution),
    "contribution edited": ("contributions", _edited),
    "contribution relabelled": ("contributions", _relabelled),
    "contribution repeated": ("contributions", lambda m: m.last.get("contributions") or _contribution(m)),
    "proof": ("equivocations", _proof),
    "proof edited": ("equivocations", _proof_edited),
    "proof bent": ("equivocations", _proof_bent),
    "proof repeated": ("equivocations", lambda m: m.last.get("equivocations") or _proof(m)),
}
"""The topic and the maker of each mutation."""

AUDITORS = (AUTHORS[0].account,)
