"""Peak of memory allocated by the validation of one message, without the message itself.

All allocations of Python count, including every copy of a payload; buffers of SQLite and the transport do
not.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from sapo_client.bench.swarm import BenchAuthor, BenchSwarm
from sapo_protocol.constants import MAX_ENVELOPE_BYTES, MAX_PAGE_ROWS, MAX_VALUES
from sapo_protocol.contributions import Proposal, Share, Tally, parse_proposal, parse_tally
from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, open_payload, parse_envelope, seal
from sapo_protocol.equivocation import open_proof, prove_equivocation
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest

Validate = Callable[[bytes], object]
"""Validates one message; raises RemoteProtocolError if it is invalid."""

_COMPLETION: Final = 8192
_MAX: Final = MAX_ENVELOPE_BYTES - 5


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory of the validation of one message."""

    message_bytes: int
    peak_bytes: int

    @property
    def times(self) -> float:
        """Ratio of the peak to the message's size."""
        return self.peak_bytes / self.message_bytes


def admission_memory() -> dict[str, Peak]:
    """Return the peak of validating each message, valid or not, by the message's description."""
    swarm, author = BenchSwarm(), BenchAuthor(0)
    rollouts = {
        name: peak(partial(_rollout_validation, swarm, author), m)
        for name, m in _rollouts(swarm, author).items()
    }
    proofs = {name: peak(partial(_proof_validation, swarm), m) for name, m in _proofs(swarm, author).items()}
    lists = {name: peak(partial(_list_validation, swarm), m) for name, m in _lists(swarm, author).items()}
    return rollouts | proofs | lists


def peak(prepare: Callable[[], Validate], message: bytes) -> Peak:
    """Return the peak of validating a message with fresh state.

    An earlier validation with separate state makes the allocations that happen once per process.
    """
    with suppress(RemoteProtocolError):
        prepare()(message)
    validate = prepare()
    gc.collect()
    tracemalloc.start()
    with suppress(RemoteProtocolError):
        validate(message)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Peak(len(message), peak_bytes)


def _rollout_validation(swarm: BenchSwarm, author: BenchAuthor) -> Validate:
    return partial(swarm.admission([author]).admit, now_seconds=swarm.now_seconds)


def _proof_validation(swarm: BenchSwarm) -> Validate:
    def validate(data: bytes) -> object:
        proof = open_proof(parse_envelope(data, swarm.manifest.swarm_id))
        proof.require_signatures()
        return proof

    return validate


def _list_validation(swarm: BenchSwarm) -> Validate:
    """Return the validation of tallies and proposals as auditors do it: parse, then verify the signature."""

    def validate(data: bytes) -> object:
        envelope = parse_envelope(data, swarm.manifest.swarm_id)
        parse = parse_tally if envelope.kind is Kind.TALLY else parse_proposal
        content = parse(open_payload(envelope, envelope.kind))
        return content, envelope.is_signed_by(content.node)

    return validate


def _rollouts(swarm: BenchSwarm, author: BenchAuthor) -> dict[str, bytes]:
    """Return the largest rollout, valid and forged, and messages on which a naive decoder allocates a lot."""
    largest = swarm.message(author, 0, 0, [b"a" * _COMPLETION] * 8)
    group = (b"a" * _COMPLETION,) * 15
    fields: dict[int, Value] = {0: author.node, 1: author.account, 2: 0, 3: 0, 4: 0, 5: group}
    too_large = seal(Kind.ROLLOUT, swarm.manifest.swarm_id, encode(fields), author.seed).to_bytes()
    return {
        "largest rollout": largest,
        "largest rollout, forged": _forged(largest),
        "too large a group": too_large,
        "numbers": _array(_MAX) + bytes(_MAX),
        "empty maps": _array(_MAX) + b"\xa0" * _MAX,
        "empty arrays": _array(_MAX) + b"\x80" * _MAX,
        "empty strings": _array(_MAX) + b"\x40" * _MAX,
        "nested arrays": _array(64) + (_array(2000) + b"\x80" * 2000) * 64,
        "one-pair maps": _array(_MAX // 3) + b"\xa1\x00\x00" * (_MAX // 3),
        "promised bytes": b"\x5b" + b"\xff" * 8 + bytes(_MAX),
        "deep nesting": b"\x81" * _MAX,
    }


def _proofs(swarm: BenchSwarm, author: BenchAuthor) -> dict[str, bytes]:
    """Return a proof of two groups as large as one message holds, valid and forged."""
    one, other = (swarm.message(author, 0, 0, [text * _COMPLETION] * 7) for text in (b"a", b"b"))
    proof = prove_equivocation(one, other, swarm.manifest.swarm_id).to_envelope().to_bytes()
    return {"proof of two contents": proof, "proof of two contents, forged": _forged(proof)}


def _lists(swarm: BenchSwarm, author: BenchAuthor) -> dict[str, bytes]:
    """Return the longest tally and proposal, valid and forged, and lists of the maximum number of values."""
    accounts = sorted(Account(sha256(b"%d" % number).digest()[:20]) for number in range(MAX_PAGE_ROWS))
    points = tuple((account, 1 << 40) for account in accounts)
    shares = tuple(Share(account, 1 << 40, 1 << 50) for account in accounts)
    tally = Tally(
        node=author.node,
        account=author.account,
        epoch=0,
        points=points,
        evidence_root=Digest(bytes(32)),
    )
    proposal = Proposal(
        node=author.node,
        account=author.account,
        epoch=0,
        tallies=(ContentId(bytes(32)),),
        shares=shares,
    )

    def send(kind: Kind, payload: bytes) -> bytes:
        return seal(kind, swarm.manifest.swarm_id, payload, author.seed).to_bytes()

    longest = {
        "longest tally": send(Kind.TALLY, tally.to_payload()),
        "longest proposal": send(Kind.PROPOSAL, proposal.to_payload()),
    }
    forged = {f"{name}, forged": _forged(message) for name, message in longest.items()}
    max_items = MAX_VALUES - 2
    hostile = {
        "tally of empty maps": _array(max_items) + b"\xa0" * max_items,
        "tally of short strings": _array(max_items) + (b"\x4b" + bytes(11)) * max_items,
        "tally of one-pair maps": _array(max_items // 3)
        + (b"\xa1\x00\x58\x20" + bytes(32)) * (max_items // 3),
    }
    return longest | forged | {name: send(Kind.TALLY, payload) for name, payload in hostile.items()}


def _forged(message: bytes) -> bytes:
    """Return the message with a wrong signature."""
    return message[:-1] + bytes((message[-1] ^ 1,))


def _array(length: int) -> bytes:
    """Return the head of a CBOR array of ``length`` items."""
    head = encode(length)
    return bytes((head[0] | 0x80,)) + head[1:]
