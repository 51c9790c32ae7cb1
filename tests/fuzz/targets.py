"""Targets of coverage-guided fuzzing: they take bytes and raise AssertionError if a guarantee is broken.

The committed corpus under ``tests/corpus/`` is replayed through the same functions by an ordinary test.
"""

from collections.abc import Callable, Mapping

from fuzz.session import outcome_of, pipeline, reference_node
from reference import cbor, derive
from reference.refusal import Refused
from support.verdicts import ruling_of
from vectors.world import FAMILIES, NOW_MS

from sapo_protocol import merkle
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.rules import Rule
from sapo_verification.tasks.answers import MAX_ANSWER_CHARACTERS, WHITESPACE, extract, holds_code


def decoder(data: bytes) -> None:
    """Check that one value has one encoding; the reference reads the same or refuses by the same rule."""
    outcome = ruling_of(decode, data)
    if isinstance(outcome, Rule):
        assert outcome.number.startswith("R1.0.")
        assert _refusal(data) == outcome.number
    else:
        assert encode(outcome) == data
        assert _refusal(data) is None


def _refusal(data: bytes) -> str | None:
    try:
        cbor.read(data)
    except Refused as refused:
        return refused.rule
    return None


def messages(data: bytes) -> None:
    """Check the bytes as a message and as a rollout: the reference's verdict, and no other error."""
    outcome = outcome_of(pipeline(), data)
    assert outcome[0] != "crash", outcome
    assert outcome == reference_node().validate("rollouts", data, NOW_MS)
    rollout = ruling_of(parse_rollout, data)
    assert isinstance(rollout, Rule) or rollout.to_payload() == data


def trees(data: bytes) -> None:
    """Check entries of 21 bytes as a tree: the reference's root, proofs that lead there and nowhere else."""
    entries = [(data[at : at + 20], data[at + 20]) for at in range(0, min(len(data), 21 * 40) - 20, 21)]
    leaves = [merkle.leaf(Account(account), value) for account, value in sorted(entries)]
    root = merkle.root(leaves)
    assert root == derive.root([derive.leaf(account, value) for account, value in sorted(entries)])
    for index, leaf in enumerate(leaves):
        proof = merkle.proof(leaves, index)
        assert merkle.verify(root, leaf, proof)
        assert derive.climb(leaf, list(proof)) == root
        stranger = Digest(bytes((leaf[0] ^ 1,)) + leaf[1:])
        assert not merkle.verify(root, stranger, proof)
        assert merkle.verify(root, leaf, (*proof, Digest(bytes(32)))) is False


def texts(data: bytes) -> None:
    """Return a completion's answer: bounded, stripped, part of the text, or none."""
    for family in FAMILIES:
        holds_code(family, data)
        answer = extract(family, data)
        if answer is None:
            continue
        assert answer == answer.strip(WHITESPACE)
        assert 0 < len(answer) <= MAX_ANSWER_CHARACTERS
        assert answer.encode() in data
        assert len(data) <= family.max_completion_bytes


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "decoder": decoder,
    "messages": messages,
    "trees": trees,
    "texts": texts,
}
