"""Ed25519 under the strict rule: the edge cases on which libraries disagree, built here by arithmetic.

``support/ed25519_cases.py`` builds them.
Each case is first shown to be what it claims: whether its equation holds, with and without the cofactor.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings
from support.ed25519_cases import Case, cases
from support.edwards import BASE, TORSION, challenge, decode

from sapo_protocol import ed25519
from sapo_protocol.identifiers import NodeId

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_edge_case(case: Case) -> None:
    assert ed25519.verify(NodeId(case.key), case.message, case.signature) is case.accepted


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "reduced" not in case.name and "negative" not in case.name],
    ids=lambda case: case.name,
)
def test_each_edge_case_has_the_described_form(case: Case) -> None:
    key, nonce = decode(case.key), decode(case.signature[:32])
    assert key is not None
    assert nonce is not None
    scalar = int.from_bytes(case.signature[32:], "little")
    left = scalar * BASE
    right = nonce + challenge(case.signature[:32], case.key, case.message) * key
    assert (left == right, 8 * left == 8 * right) == (case.plain, case.cofactored)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.plain and not case.accepted], ids=lambda case: case.name
)
def test_forms_are_refused_by_this_package_itself(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a release of the library lets through: here it lets everything through."""
    monkeypatch.setattr(bindings, "crypto_sign_open", lambda signed, key: signed)
    assert not ed25519.verify(NodeId(case.key), case.message, case.signature)


def test_every_point_of_small_order_is_refused_as_key_and_as_nonce() -> None:
    small = {(step * TORSION).encode() for step in range(8)}
    assert len(small) == 8
    seed, message = b"\x01" * 32, b"message"
    scalar = ed25519.sign(seed, message)[32:]
    for encoded in small:
        assert not ed25519.verify(NodeId(encoded), message, encoded + bytes(32))
        assert not ed25519.verify(ed25519.public_key(seed), message, encoded + scalar)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_own_signatures_are_accepted_and_belong_to_key_and_message(seed: bytes, message: bytes) -> None:
    node, signature = ed25519.public_key(seed), ed25519.sign(seed, message)
    assert ed25519.verify(node, message, signature)
    assert not ed25519.verify(node, message + b"\x00", signature)
    stranger = ed25519.public_key(bytes((seed[0] ^ 1,)) + seed[1:])
    assert not ed25519.verify(stranger, message, signature)


@given(st.integers(0, 511))
def test_no_flipped_bit_passes(bit: int) -> None:
    signature = bytearray(ed25519.sign(b"\x02" * 32, b"message"))
    signature[bit // 8] ^= 1 << bit % 8
    assert not ed25519.verify(ed25519.public_key(b"\x02" * 32), b"message", bytes(signature))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=70))
def test_any_key_and_signature_are_accepted_or_refused(key: bytes, signature: bytes) -> None:
    assert ed25519.verify(NodeId(key), b"message", signature) is False


def test_rfc_8032_vector() -> None:
    """Section 7.1, TEST 2."""
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    assert (ed25519.public_key(seed), ed25519.sign(seed, b"\x72")) == (key, signature)
    assert ed25519.verify(NodeId(key), b"\x72", signature)
