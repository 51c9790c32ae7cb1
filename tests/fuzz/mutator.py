"""Valid envelopes, and mutations of their bytes.

Every choice comes from one seeded generator, so a number names an envelope. The mutator keeps a list of all
payloads that an author really signed: whatever is accepted must be on it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vectors.raw import Raw, cbor, head, pairs
from vectors.world import ALICE, ALICES_SECOND_KEY, BOB, CHAINED, PLAIN, STRANGER, Identity, frame_fields

from sapo_protocol import ed25519
from sapo_protocol.envelope import Kind, signed_bytes

AUTHORS = (ALICE, BOB, ALICES_SECOND_KEY, STRANGER)
NUMBERS = (0, 1, 2, 3, 4, 5, 23, 24, 31, 32, 33, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1, 2**32, 2**64 - 1)
SIZES = (0, 1, 19, 20, 21, 31, 32, 33, 63, 64, 65, 300, 8192, 8193)
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


@dataclass
class Mutator:
    """A source of envelopes.

    Attributes:
        signed: node, kind and payload of everything that its author signed for this swarm.
        recent: what came out lately, and in ``last`` the contribution and the proof that came last.
    """

    random: random.Random
    signed: set[tuple[bytes, int, bytes]] = field(default_factory=set)
    recent: list[bytes] = field(default_factory=list)
    last: dict[str, bytes] = field(default_factory=dict)

    def next(self) -> tuple[str, bytes]:
        """Return the name of a mutation and its outcome."""
        name = self.random.choices(list(MUTATIONS), list(WEIGHTS))[0]
        data = MUTATIONS[name](self)
        self.recent = [*self.recent[-15:], data]
        return name, data

    def author(self) -> Identity:
        """Return an author, seldom one without a certificate."""
        return self.random.choices(AUTHORS, (10, 10, 5, 1))[0]

    def fields(self, author: Identity) -> dict[int, Any]:
        """Return a valid rollout."""
        fields = author.fields(
            f2=self.random.choice((2, 3)),
            f3=self.random.randrange(32),
            f4=self.random.randrange(3),
            f5=[self.random.randbytes(4).hex().encode() for _ in range(self.random.randint(1, 8))],
        )
        if self.random.random() < 0.2:
            fields[6] = self.random.randbytes(32)
        return fields

    def seal(self, author: Identity, payload: bytes, kind: Kind = Kind.ROLLOUT) -> dict[int, Any]:
        """Return the fields of an envelope with a genuine signature."""
        self.signed.add((bytes(author.node), int(kind), payload))
        signature = ed25519.sign(author.seed, signed_bytes(kind, PLAIN.swarm_id, payload))
        return frame_fields(PLAIN, kind=int(kind), payload=payload, signature=signature)

    def genuine(self) -> bytes:
        """Return a valid rollout in a valid envelope."""
        author = self.author()
        return cbor(self.seal(author, cbor(self.fields(author))))

    def value(self, depth: int = 3) -> Any:
        """Return any value."""
        kind = self.random.randrange(7 if depth else 3)
        if kind == 0:
            return self.random.choice(NUMBERS)
        if kind == 1:
            return self.random.randbytes(min(self.random.choice(SIZES), 70))
        if kind == 2:
            return self.random.choice(("", "a", "é", "🐸" * 9))
        if kind == 3:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        if kind == 4:
            return {key: self.value(depth - 1) for key in sorted(self.random.sample(range(30), 3))}
        if kind == 5:
            return self.random.choice((False, None, -1, Raw(b"\xf9\x3c\x00"), Raw(b"\xc1\x00"), Raw(b"\xff")))
        return Raw(self.random.randbytes(self.random.randrange(6)))


def _flip(m: Mutator) -> bytes:
    data = bytearray(m.genuine())
    for _ in range(m.random.choice((1, 1, 1, 2, 8))):
        data[m.random.randrange(len(data))] ^= 1 << m.random.randrange(8)
    return bytes(data)


def _splice(m: Mutator) -> bytes:
    a, b = m.genuine(), m.recent[-1] if m.recent else m.genuine()
    cut = m.random.randrange(len(a))
    return a[:cut] + b[min(cut + m.random.choice((0, 0, 1, -1)), len(b)) :]


def _edit(m: Mutator) -> bytes:
    """Cut, double, replace or insert a span."""
    data = m.genuine()
    start, end = sorted(m.random.randrange(len(data) + 1) for _ in range(2))
    end = min(end, start + m.random.choice((0, 1, 4, 300)))
    middle = m.random.choice(
        (b"", data[start:end] * 2, m.random.randbytes(end - start), m.random.randbytes(3))
    )
    return data[:start] + middle + data[end:]


def _cut(m: Mutator) -> bytes:
    data = m.genuine()
    return data[: m.random.randrange(len(data))] if m.random.random() < 0.7 else data + m.random.randbytes(2)


def _resigned(m: Mutator) -> bytes:
    """Return a field of the rollout replaced, under a genuine signature."""
    return cbor(m.seal(*_changed(m)))


def _unsigned(m: Mutator) -> bytes:
    """Return a rollout with one field replaced without a new signature."""
    author = m.author()
    envelope = m.seal(author, cbor(m.fields(author)))
    _, payload = _changed(m)
    return cbor({**envelope, 3: payload})


def _changed(m: Mutator) -> tuple[Identity, bytes]:
    author = m.author()
    fields = m.fields(author)
    key = m.random.choice((0, 1, 2, 3, 4, 5, 6, 7))
    if key in (2, 3, 4) and m.random.random() < 0.8:
        fields[key] = m.random.choice(NUMBERS)
    elif key == 5 and m.random.random() < 0.8:
        fields[key] = [_completion(m) for _ in range(m.random.choice((0, 1, 2, 8, 9, 16, 17)))]
    elif key in fields and m.random.random() < 0.2:
        del fields[key]
    elif key == 0 and m.random.random() < 0.5:
        fields[key] = bytes(m.random.choice(AUTHORS).node)
    else:
        fields[key] = m.value()
    return author, cbor(dict(sorted(fields.items())))


def _completion(m: Mutator) -> bytes:
    text = m.random.choice(("7", "", "é", "\x00", "🐸", "\u202e", "a" * 300)).encode()
    return text if m.random.random() < 0.9 else text + m.random.randbytes(2)


def _reframed(m: Mutator) -> bytes:
    """Return a field of the envelope replaced, dropped or added."""
    author = m.author()
    fields = m.seal(author, cbor(m.fields(author)))
    key = m.random.randrange(6)
    if m.random.random() < 0.2:
        fields.pop(key, None)
    elif key == 2 and m.random.random() < 0.5:
        fields[key] = bytes(CHAINED.swarm_id)
    elif key < 2 and m.random.random() < 0.6:
        fields[key] = m.random.choice(NUMBERS)
    else:
        fields[key] = m.value()
    return cbor(dict(sorted(fields.items())))


def _resignature(m: Mutator) -> bytes:
    """Return another signature over the same content."""
    author = m.author()
    fields = m.seal(author, cbor(m.fields(author)))
    point, scalar = fields[4][:32], int.from_bytes(fields[4][32:], "little")
    other = m.author()
    fields[4] = m.random.choice(
        (
            point + (scalar + m.random.randint(1, 14) * GROUP_ORDER).to_bytes(32, "little"),
            point + (GROUP_ORDER - scalar).to_bytes(32, "little"),
            bytes(31) + b"\x80" + fields[4][32:],
            (1).to_bytes(32, "little") + fields[4][32:],
            ed25519.sign(other.seed, signed_bytes(Kind.ROLLOUT, PLAIN.swarm_id, b"another")),
            ed25519.sign(author.seed, signed_bytes(Kind.ROLLOUT, CHAINED.swarm_id, fields[3])),
            m.random.randbytes(64),
        )
    )
    return cbor(fields)


def _bomb(m: Mutator) -> bytes:
    """Return a head that announces more bytes than follow, or as many."""
    data = m.genuine()
    at = m.random.randrange(len(data))
    length = m.random.choice((8192, 8193, 131_072, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1))
    bomb = head(m.random.choice((2, 3, 4, 5)), length) + m.random.choice(
        (b"", b"\x00" * 9000, b"\xa0" * 9000)
    )
    return data[:at] + bomb + data[at + 1 :]


def _respelt(m: Mutator) -> bytes:
    """Return the same value in another encoding, of the payload and of the envelope."""
    author = m.author()
    payload = _respell(m, m.fields(author))
    envelope = m.seal(author, cbor(payload))
    return cbor(envelope if m.random.random() < 0.5 else _respell(m, envelope))


def _respell(m: Mutator, fields: dict[int, Any]) -> Raw:
    items: list[tuple[Any, Any]] = list(fields.items())
    at = m.random.randrange(len(items))
    key, value = items[at]
    match m.random.randrange(5):
        case 0:
            m.random.shuffle(items)
        case 1:
            items.insert(at, items[at])
        case 2:
            items[at] = (Raw(head(0, key, m.random.choice((1, 2, 4, 8)))), value)
        case 3:
            body = value if isinstance(value, bytes) else b""
            number = value if isinstance(value, int) else len(value)
            major = 0 if isinstance(value, int) else 2 if isinstance(value, bytes) else 4
            items[at] = (key, Raw(head(major, number, m.random.choice((4, 8))) + body))
        case 4:
            items[at] = (key, m.random.choice(([value], {0: value}, Raw(b"\xd8\x18" + cbor(value)))))
    return pairs(*items)


def _repeated(m: Mutator) -> bytes:
    """Return the message that was sent last, once more."""
    return m.random.choice(m.recent) if m.recent else m.genuine()


def _later(m: Mutator) -> bytes:
    """Return a rollout with keys, in an envelope with keys or of a kind, that are mostly reserved."""
    author = m.author()
    fields = m.fields(author)
    for key in m.random.sample(range(6, 26), m.random.choice((0, 1, 1, 2))):
        fields[key] = m.value(1)
    envelope = m.seal(author, cbor(dict(sorted(fields.items()))))
    if m.random.random() < 0.3:
        envelope[m.random.randrange(5, 26)] = m.value(1)
    if m.random.random() < 0.3:
        envelope[1] = m.random.randrange(26)
    return cbor(envelope)


MUTATIONS: dict[str, Callable[[Mutator], bytes]] = {
    "genuine": Mutator.genuine,
    "bits flipped": _flip,
    "spliced": _splice,
    "span edited": _edit,
    "cut or lengthened": _cut,
    "field edited, signed again": _resigned,
    "field edited, not signed": _unsigned,
    "frame edited": _reframed,
    "signature edited": _resignature,
    "length bomb": _bomb,
    "spelt differently": _respelt,
    "repeated": _repeated,
    "of a later version": _later,
}
WEIGHTS = (1, 3, 2, 2, 2, 3, 1, 2, 1, 1, 2, 1, 2)
