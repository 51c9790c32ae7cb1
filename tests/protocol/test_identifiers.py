"""Fixed-size bytes: one length, and hexadecimal for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, FixedBytes, NodeId, SwarmId

TYPES = [Account, ContentId, Digest, NodeId, SwarmId]


@given(st.sampled_from(TYPES), st.binary(max_size=64))
def test_only_one_length_is_accepted(type_: type[FixedBytes], raw: bytes) -> None:
    if len(raw) == type_.SIZE:
        assert type_(raw) == raw
        return
    with pytest.raises(LocalProtocolError):
        type_(raw)


@given(st.sampled_from(TYPES).flatmap(fixed))
def test_the_text_of_an_identifier_is_hexadecimal(value: FixedBytes) -> None:
    assert type(value).from_hex(str(value)) == value
    assert type(value).from_hex("0x" + value.hex().upper()) == value
    assert str(value).lower() == ("0x" if isinstance(value, Account) else "") + value.hex()
    assert repr(value) == f"{type(value).__name__}({value.hex()})"


@pytest.mark.parametrize(
    "text",
    [  # the examples of EIP-55
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ],
)
def test_an_account_is_written_as_wallets_write_it(text: str) -> None:
    assert str(Account.from_hex(text.lower())) == text


@pytest.mark.parametrize("text", ["", "0x", "zz" * 20, "00" * 19, "00" * 21, "0" * 39])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        Account.from_hex(text)
