"""The swarms and identities of the vectors, from small numbers; and the type of a case."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from vectors.raw import Raw, cbor

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, signed_bytes
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.suite import Family, Suite, canonical_json
from sapo_protocol.terms.auditors import Replacement
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.difficulty import Difficulty
from sapo_protocol.terms.gate import BondGate, EasGate, OpenGate
from sapo_protocol.terms.islands import IslandTerms

GENESIS = 1_800_000_000
EPOCH_SECONDS = 60
EPOCH = 3
LATER_KINDS = range(7, 24)
"""Kinds that are reserved for later versions; 7 is so everywhere but on the topic of commitments."""

NOW_MS = 1000 * (GENESIS + EPOCH * EPOCH_SECONDS + EPOCH_SECONDS // 2)
YEAR_END = GENESIS + 86_400


def _family(name: str, config: str, scorer: str) -> Family:
    return Family(
        name=name,
        level="nano",
        config=config,
        scorer=scorer,
        prompt="{question}\n",
        answer="plain",
        max_completion_bytes=24,
    )


FAMILIES = (
    _family("basic_arithmetic", '{"max_digits":1,"operators":["+","-"]}', "exact/1"),
    _family("base_conversion", '{"max_base":10,"min_base":2}', "exact/1"),
    Family(
        name="fraction_simplification",
        level="full",
        config='{"note":"\\u00e9\\ud83d\\udc38","p":0.25,"z":null}',
        scorer="fraction/1",
        prompt="Löse dies — {question}\n🐸",
        answer="tag",
        max_completion_bytes=4096,
    ),
)

PLAIN = Manifest(
    name="vectors",
    bootstrap=(),
    chain_id=0,
    registry=None,
    ledger=None,
    finality_seconds=0,
    genesis_seconds=GENESIS,
    epoch_seconds=EPOCH_SECONDS,
    suite=Suite("0.1.25", FAMILIES, Digest(sha256(b"samples").digest())),
    limits=Limits(slots_per_epoch=32, max_completions=8, points_per_epoch=16),
)
CHAINED = replace(
    PLAIN,
    name="vectors, with a chain",
    chain_id=31337,
    registry=Account(bytes(19) + b"\x01"),
    ledger=Account(bytes(19) + b"\x02"),
    finality_seconds=12,
)
SPELLING = canonical_json(
    {
        "strings": ['"\\/', "\b\f\n\r\t\x00\x1f\x7f", "\u2028\ufeff", "\U0001d173"],
        "integers": [0, -1, 2**53 + 1, -(2**64)],
        "doubles": [1.0, -0.0, 0.1, 1e-4, 1e-5, 1.5e16, 1e15, 123456789012345.6, 1e16, 1e22, 5e-324, 1e100],
        "constants": [True, False, None],
        "\u00e9": {"b": [], "a": {}},
        "": 0,
        "Z": 0,
        "a": 0,
    }
)
"""Everything that a config can be spelt wrongly with."""

_BOND = Account(bytes(19) + b"\x04")
_SERVICE = Account(bytes(19) + b"\x05")
_SCHEMA = Digest(sha256(b"schema").digest())
ATTESTERS = tuple(Account(bytes(19) + bytes([number])) for number in range(16, 32))
_LEVELS = tuple(replace(FAMILIES[0], level=level) for level in ("easy", "full"))
LADDERS = replace(
    PLAIN,
    name="vectors, with ladders",
    version=2,
    suite=replace(PLAIN.suite, families=(*FAMILIES, *_LEVELS)),
    difficulty=Difficulty(ladders=((0, 3, 4), (1, 2)), step=250, floor=125, groups=32, completions=2),
)
WIDE = replace(PLAIN, name="vectors, wide", limits=Limits(2**32, 16, 2**64 - 1))
MANIFESTS: Mapping[str, Manifest] = {
    "plain": PLAIN,
    "chained": CHAINED,
    "other chain": replace(CHAINED, chain_id=1),
    "other registry": replace(CHAINED, registry=Account(bytes(19) + b"\x03")),
    "wide": WIDE,
    "spelling": replace(
        PLAIN, suite=replace(PLAIN.suite, families=(_family("basic_arithmetic", SPELLING, "exact/1"),))
    ),
    "long epochs": replace(PLAIN, epoch_seconds=3600, genesis_seconds=0),
    "version 2": replace(PLAIN, version=2),
    "one island": replace(PLAIN, version=2, islands=IslandTerms(64, 32, 4, 64, count=1)),
    "four islands": replace(PLAIN, version=2, islands=IslandTerms(64, 32, 2, 64, count=4)),
    "islands by the chain": replace(CHAINED, version=2, islands=IslandTerms(2**32 - 1, 1, 2**16, 2**16)),
    "open gate": replace(PLAIN, version=2, gate=OpenGate()),
    "two to an island": replace(CHAINED, version=2, islands=IslandTerms(2, 1, 2, 4)),
    "bond gate": replace(CHAINED, version=2, gate=BondGate(_BOND, 10**20, 12 + 14 * EPOCH_SECONDS)),
    "smallest bond": replace(CHAINED, version=2, gate=BondGate(_BOND, 1, 2**64 - 1)),
    "eas gate": replace(
        CHAINED, version=2, gate=EasGate(_SERVICE, _SCHEMA, ATTESTERS[:2], after_block=1_000_000)
    ),
    "many attesters": replace(CHAINED, version=2, gate=EasGate(_SERVICE, _SCHEMA, ATTESTERS, 0)),
    "ladders": LADDERS,
    "ladders on a chain": replace(
        LADDERS, chain_id=CHAINED.chain_id, registry=CHAINED.registry, ledger=CHAINED.ledger
    ),
    "sampled": replace(CHAINED, version=2, audits=AuditTerms(samples=4, one_in=1)),
    "sampled on islands": replace(
        CHAINED, version=2, islands=IslandTerms(64, 32, 2, 64, count=4), audits=AuditTerms(8, 65_536)
    ),
    "sampled behind a bond": replace(
        CHAINED, version=2, gate=BondGate(_BOND, 10**20, 12 + 14 * EPOCH_SECONDS), audits=AuditTerms(1, 2)
    ),
    "largest bond": replace(CHAINED, version=2, gate=BondGate(_BOND, 2**96 - 1, 12 + 14 * EPOCH_SECONDS)),
}


@dataclass(frozen=True)
class Identity:
    """Both secrets of a participant."""

    name: str
    key: int = 0

    @cached_property
    def seed(self) -> bytes:
        """Return the secret seed of the node key."""
        return sha256(f"vectors node {self.name} {self.key}".encode()).digest()

    @cached_property
    def secret(self) -> bytes:
        """Return the secret key of the account."""
        return sha256(f"vectors account {self.name}".encode()).digest()

    @cached_property
    def node(self) -> NodeId:
        """Return the node key."""
        return ed25519.public_key(self.seed)

    @cached_property
    def account(self) -> Account:
        """Return the account."""
        return secp256k1.account_of(self.secret)

    def certificate(
        self, manifest: Manifest = PLAIN, not_before: int = GENESIS, not_after: int = YEAR_END
    ) -> bytes:
        """Return a genuine certificate."""
        binding = NodeBinding(self.node, manifest.swarm_id, not_before, not_after)
        return issue_certificate(self.seed, self.secret, binding, manifest.binding_domain).to_bytes()

    def fields(self, **changes: Any) -> dict[int, Any]:
        """Return the fields of a rollout by key; ``f5=...`` replaces field 5, ``f5=None`` leaves it out."""
        fields: dict[int, Any] = {
            0: bytes(self.node),
            1: bytes(self.account),
            2: EPOCH,
            3: 0,
            4: 0,
            5: [b"7", b"8"],
        }
        return changed(fields, changes)

    def rollout(self, manifest: Manifest = PLAIN, **changes: Any) -> bytes:
        """Return a rollout with some fields replaced, under a genuine signature."""
        return self.signed(cbor(self.fields(**changes)), manifest)

    def signed(self, payload: bytes, manifest: Manifest = PLAIN, kind: Kind = Kind.ROLLOUT) -> bytes:
        """Return an envelope over any payload under a genuine signature."""
        signature = ed25519.sign(self.seed, signed_bytes(kind, manifest.swarm_id, payload))
        return frame(manifest, kind=int(kind), payload=payload, signature=signature)


def frame(manifest: Manifest = PLAIN, **fields: Any) -> bytes:
    """Return an envelope of any fields."""
    return cbor(frame_fields(manifest, **fields))


def frame_fields(
    manifest: Manifest = PLAIN,
    version: Any = 1,
    kind: Any = 2,
    swarm: Any = None,
    payload: Any = b"",
    signature: Any = bytes(64),
) -> dict[int, Any]:
    """Return the fields of an envelope by key."""
    return {
        0: version,
        1: kind,
        2: bytes(manifest.swarm_id) if swarm is None else swarm,
        3: payload,
        4: signature,
    }


def changed(fields: dict[int, Any], changes: Mapping[str, Any]) -> dict[int, Any]:
    """Return fields after changes named ``f<key>``, in the order of their keys."""
    merged = {**fields, **{int(name[1:]): value for name, value in changes.items()}}
    return {key: merged[key] for key in sorted(merged) if merged[key] is not None}


@dataclass(frozen=True)
class Message:
    """One message and the rule that it breaks; none means ACCEPT."""

    rule: str | None
    data: bytes
    topic: str = "rollouts"
    offset_ms: int = 0


Bonds = tuple[tuple[int, Mapping[Account, int]], ...]
"""Epochs with what each account has bonded, as if the chain had said so."""

Paid = tuple[tuple[int, tuple[int, ...]], ...]
"""Epochs with how many accounts were paid in the final epochs that their islands rest on."""


@dataclass(frozen=True)
class Announced:
    """Successors of a swarm's terms as if the chain had said so, and the last epoch with certain terms."""

    documents: tuple[tuple[int, bytes], ...]
    known_until: int


@dataclass(frozen=True)
class Case:
    """A node's knowledge and the messages that it receives."""

    name: str
    messages: tuple[Message, ...]
    manifest: str = "plain"
    certificates: tuple[str, ...] = ("alice", "bob")
    seen: tuple[bytes, ...] = ()
    auditors: tuple[str, ...] = ()
    now_ms: int = NOW_MS
    bonds: Bonds = ()
    paid: Paid = ()
    terms: Announced | None = None
    replacements: tuple[Replacement, ...] = ()


def one(name: str, rule: str | None, data: bytes, **options: Any) -> Case:
    """Return the case of one message, on the topic of rollouts by default."""
    topic, offset = options.pop("topic", "rollouts"), options.pop("offset_ms", 0)
    return Case(name, (Message(rule, data, topic, offset),), **options)


ALICE, BOB, MALLORY, STRANGER = (Identity(name) for name in ("alice", "bob", "mallory", "stranger"))
ALICES_SECOND_KEY = Identity("alice", key=1)


@dataclass
class Introductions:
    """The certificates that cases name, of every manifest."""

    by_name: dict[str, bytes] = field(default_factory=dict)

    def of(self, manifest: str) -> Iterator[tuple[str, bytes]]:
        """Yield names and certificates that count in a manifest's swarm."""
        swarm = MANIFESTS[manifest]
        start = swarm.genesis_seconds
        for who in (ALICE, BOB, MALLORY, ALICES_SECOND_KEY):
            label = who.name + (f" {who.key}" if who.key else "")
            yield label, who.certificate(swarm, start, start + 86_400)


WRONG_TYPES: Mapping[str, Any] = {
    "number": 1,
    "bytes": b"1",
    "text": "1",
    "array": [],
    "map": {},
}
FORBIDDEN_TYPES: Mapping[str, Any] = {
    "false": False,
    "null": None,
    "negative number": -1,
    "half float": Raw(b"\xf9\x3c\x00"),
    "tagged number": Raw(b"\xc2\x41\x01"),
}
