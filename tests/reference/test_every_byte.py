"""One pass by the schema against the reference's whole decoding: every byte of every object, changed.

The objects are small but have every field; what is accepted must also be written back as the same bytes.
Inside a run of equal bytes, which is the middle of a string, a few other values stand for all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from reference import objects
from reference.refusal import Refused
from support.verdicts import ruling_of

from sapo_protocol.audits.commitment import commit, parse_commitment
from sapo_protocol.certificate import Certificate, parse_certificate
from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Share,
    Tally,
    parse_approval,
    parse_proposal,
    parse_tally,
)
from sapo_protocol.envelope import Kind, SignedEnvelope, parse_envelope
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId, SwarmId
from sapo_protocol.rollout import Rollout, parse_rollout
from sapo_protocol.rules import Rule

SWARM = SwarmId(b"\x05" * 32)
NODE, ACCOUNT = NodeId(b"\x11" * 32), Account(b"\x07" * 20)
IDS = ContentId(b"\x01" * 32), ContentId(b"\x02" * 32)
OTHER = Account(b"\x08" * 20)
AUTHOR: Mapping[str, Any] = {"node": NODE, "account": ACCOUNT, "epoch": 300}


@dataclass(frozen=True)
class Reading:
    """An object's bytes, and how each implementation reads them."""

    data: bytes
    parse: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    reference: Callable[[bytes], Any]


def payload(genuine: Any, parse: Callable[[bytes], Any], reference: Callable[[bytes], Any]) -> Reading:
    return Reading(genuine.to_payload(), parse, lambda read: bytes(read.to_payload()), reference)


ENVELOPE = SignedEnvelope(Kind.ROLLOUT, SWARM, b"a payload of at least 24 bytes", bytes(64))
TAGGED = Rollout(
    **AUTHOR, slot=70_000, family=3, completions=(b"7", "é".encode() * 13), policy_tag=Digest(bytes(32))
)
PLAIN = Rollout(**AUTHOR, slot=1, family=200, completions=(b"",))
CERTIFICATE = Certificate(
    node=NODE,
    account=ACCOUNT,
    not_before_seconds=5,
    not_after_seconds=500,
    account_signature=bytes(65),
)
TALLY = Tally(**AUTHOR, points=((ACCOUNT, 4), (OTHER, 0)), evidence_root=Digest(bytes(32)))
COMMITMENT = commit(NODE, ACCOUNT, AUTHOR["epoch"], [(0, IDS[0]), (9, IDS[1])])
PROPOSAL = Proposal(**AUTHOR, tallies=IDS, shares=(Share(ACCOUNT, 4, 30), Share(OTHER, 0, 6)))
READINGS = {
    "envelope": Reading(
        ENVELOPE.to_bytes(),
        lambda data: parse_envelope(data, SWARM),
        SignedEnvelope.to_bytes,
        lambda data: objects.envelope(data, SWARM),
    ),
    "rollout with a tag": payload(TAGGED, parse_rollout, objects.rollout),
    "rollout": payload(PLAIN, parse_rollout, objects.rollout),
    "certificate": payload(CERTIFICATE, parse_certificate, objects.certificate),
    "commitment": payload(COMMITMENT, parse_commitment, objects.commitment),
    "tally": payload(TALLY, parse_tally, objects.tally),
    "proposal": payload(PROPOSAL, parse_proposal, objects.proposal),
    "approval": payload(
        Approval(**AUTHOR, proposal=IDS[0], signature=bytes(65)), parse_approval, objects.approval
    ),
}
INSERTED = bytes(
    (0x00, 0x01, 0x17, 0x18, 0x1B, 0x1F, 0x40, 0x58, 0x60, 0x80, 0x98, 0xA0, 0xA1, 0xC0, 0xF6, 0xFF)
)
"""Numbers, heads of every kind and of every length, tags, simple values and a break."""


def changed(data: bytes) -> Iterator[bytes]:
    """Yield the bytes with one of them set to every value, removed or added, and every beginning of them."""
    for at in range(len(data)):
        yield data[:at]
        yield data[:at] + data[at + 1 :]
        is_inside = data[max(0, at - 2) : at + 1] == data[at : at + 1] * 3
        for value in INSERTED if is_inside else range(256):
            yield data[:at] + bytes((value,)) + data[at + 1 :]
        for value in INSERTED[::4] if is_inside else INSERTED:
            yield data[:at] + bytes((value,)) + data[at:]
    for value in range(256):
        yield data + bytes((value,))


def by_reference(reading: Reading, data: bytes) -> bytes | str:
    try:
        reading.reference(data)
    except Refused as refused:
        return refused.rule
    return data


def by_production(reading: Reading, data: bytes) -> bytes | str:
    outcome = ruling_of(reading.parse, data)
    return outcome.number if isinstance(outcome, Rule) else reading.write(outcome)


@pytest.mark.parametrize("name", READINGS)
def test_every_changed_byte_has_the_same_outcome_in_both_implementations(name: str) -> None:
    reading = READINGS[name]
    assert by_production(reading, reading.data) == reading.data
    accepted = 0
    for data in changed(reading.data):
        outcome = by_production(reading, data)
        assert outcome == by_reference(reading, data), data.hex()
        accepted += isinstance(outcome, bytes)
    assert accepted > len(reading.data)
