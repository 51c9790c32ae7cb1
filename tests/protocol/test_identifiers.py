"""Fixed-size bytes: one length, and hexadecimal for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed
from support.verdicts import reason_of

from sapo_protocol.errors import LocalProtocolError, Reason
from sapo_protocol.identifiers import Account, ContentId, Digest, FixedBytes, NodeId, SwarmId
from sapo_protocol.rules import Rule

TYPES = [Account, ContentId, Digest, NodeId, SwarmId]


@given(st.sampled_from(TYPES), st.binary(max_size=64))
def test_only_one_length_is_taken(type_: type[FixedBytes], raw: bytes) -> None:
    if len(raw) == type_.SIZE:
        assert type_.parse(raw, Rule.ROLLOUT_TYPES) == type_(raw) == raw
        return
    assert reason_of(type_.parse, raw, Rule.ROLLOUT_TYPES) is Reason.SCHEMA
    with pytest.raises(LocalProtocolError):
        type_(raw)


@pytest.mark.parametrize("value", [0, "00" * 32, (0,) * 32, None, bytearray(32), {}])
def test_only_bytes_are_parsed(value: object) -> None:
    assert reason_of(Digest.parse, value, Rule.ROLLOUT_TYPES) is Reason.SCHEMA


@given(st.sampled_from(TYPES).flatmap(fixed))
def test_people_read_and_write_hexadecimal(value: FixedBytes) -> None:
    assert type(value).from_hex(str(value)) == value
    assert type(value).from_hex("0x" + value.hex().upper()) == value
    assert str(value) == ("0x" if isinstance(value, Account) else "") + value.hex()
    assert repr(value) == f"{type(value).__name__}({value.hex()})"


@pytest.mark.parametrize("text", ["", "0x", "zz" * 20, "00" * 19, "00" * 21, "0" * 39])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        Account.from_hex(text)
