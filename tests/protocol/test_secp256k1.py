"""Account signatures: recoverable, low s only."""

import pytest
from eth_account import Account as EthAccount
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import damaged, fixed

from sapo_protocol import secp256k1
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest

N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
secrets = st.integers(1, N - 1).map(lambda number: number.to_bytes(32, "big"))


@given(secrets, fixed(Digest))
def test_a_signature_names_its_account(secret: bytes, digest: Digest) -> None:
    signature = secp256k1.sign(secret, digest)
    assert secp256k1.recover(digest, signature) == secp256k1.account_of(secret)
    assert signature[64] in (27, 28)


@given(secrets, fixed(Digest))
def test_eth_account_agrees(secret: bytes, digest: Digest) -> None:
    account = EthAccount.from_key(secret)
    assert "0x" + secp256k1.account_of(secret).hex() == account.address.lower()
    assert secp256k1.sign(secret, digest) == bytes(account.unsafe_sign_hash(digest).signature)


@given(secrets, fixed(Digest))
def test_signatures_with_a_high_s_are_refused(secret: bytes, digest: Digest) -> None:
    signature = secp256k1.sign(secret, digest)
    high = N - int.from_bytes(signature[32:64], "big")
    twin = signature[:32] + high.to_bytes(32, "big") + bytes((55 - signature[64],))
    assert secp256k1.recover(digest, twin) is None
    assert EthAccount._recover_hash(digest, signature=twin).lower() == (
        "0x" + secp256k1.account_of(secret).hex()
    ), "the twin is a signature, and is refused for its form alone"


@given(secrets, fixed(Digest), st.data())
def test_a_damaged_signature_names_another_account_or_none(
    secret: bytes, digest: Digest, data: st.DataObject
) -> None:
    signature = secp256k1.sign(secret, digest)
    other = data.draw(damaged(signature).filter(lambda changed: changed != signature))
    assert secp256k1.recover(digest, other) != secp256k1.account_of(secret)


@given(fixed(Digest), st.binary(min_size=64, max_size=64), st.integers(0, 255))
def test_any_bytes_give_an_account_or_are_refused(digest: Digest, body: bytes, v: int) -> None:
    account = secp256k1.recover(digest, body + bytes((v,)))
    assert account is None or (v in (27, 28) and len(account) == 20)


@pytest.mark.parametrize(("r", "s"), [(0, 1), (1, 0), (0, 0), (N, 1), (2**256 - 1, 1), (5, 1)])
@pytest.mark.parametrize("v", [27, 28])
def test_scalars_out_of_range_are_refused(r: int, s: int, v: int) -> None:
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes((v,))
    assert secp256k1.recover(Digest(b"\x11" * 32), signature) is None


def test_a_secret_of_another_size_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        secp256k1.sign(b"\x01" * 31, Digest(bytes(32)))
