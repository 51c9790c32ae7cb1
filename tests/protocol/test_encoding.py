"""Deterministic CBOR: one encoding per value; hostile bytes only cause an error."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.memory_peak import other_process, refusal
from support.strategies import damaged, values
from support.verdicts import reason_of

from sapo_protocol.constants import MAX_ENVELOPE_BYTES, MAX_NESTING, MAX_UINT64, MAX_VALUES
from sapo_protocol.decoding import Value, decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import LocalProtocolError, Reason, RemoteProtocolError


@given(values())
def test_encoded_values_decode_to_the_same_value(value: Value) -> None:
    assert decode(encode(value)) == value


@given(values())
def test_cbor2_writes_and_reads_the_same(value: Value) -> None:
    assert encode(value) == cbor2.dumps(value, canonical=True)
    assert _tuples(cbor2.loads(encode(value))) == value


@given(st.binary(max_size=200) | values().map(encode).flatmap(damaged))
def test_bytes_are_the_encoding_of_their_value_or_an_error(data: bytes) -> None:
    reason = reason_of(decode, data)
    if reason is None:
        assert encode(decode(data)) == data
    else:
        assert reason in (Reason.NOT_CANONICAL, Reason.OUT_OF_BOUNDS)


@given(values(depth=2), values(depth=2))
def test_different_values_have_different_encodings(a: Value, b: Value) -> None:
    assert (encode(a) == encode(b)) == (a == b)


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ("", "nothing"),
        ("1817", "23 in two bytes"),
        ("190017", "23 in three bytes"),
        ("1a0000ffff", "65,535 in five bytes"),
        ("1b00000000ffffffff", "2**32 - 1 in nine bytes"),
        ("5801ff", "a length of 1 in two bytes"),
        ("1c", "a reserved length"),
        ("1f", "an indefinite integer"),
        ("5f4101ff", "an indefinite byte string"),
        ("9f01ff", "an indefinite array"),
        ("bf0101ff", "an indefinite map"),
        ("20", "a negative integer"),
        ("c001", "a tag"),
        ("f4", "false"),
        ("f6", "null"),
        ("f90000", "a float"),
        ("fb7ff8000000000001", "a NaN with a payload"),
        ("ff", "a break"),
        ("a2010100ff", "map keys that descend"),
        ("a201000100", "a key twice"),
        ("a1414100", "a byte string for a key"),
        ("a1616100", "text for a key"),
        ("a1800000", "an array for a key"),
        ("a101", "a map without its value"),
        ("61ff", "text that is no UTF-8"),
        ("63eda080", "a lone surrogate"),
        ("0000", "two values"),
        ("818181818100", "five levels"),
        ("a100a100a100a100a10000", "five levels of maps"),
    ],
)
def test_other_encodings_are_refused(encoded: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        decode(bytes.fromhex(encoded))
    assert raised.value.reason is Reason.NOT_CANONICAL, why


def test_the_deepest_object_is_taken() -> None:
    assert decode(bytes.fromhex("8181818100")) == ((((0,),),),)
    assert MAX_NESTING == 4


@pytest.mark.parametrize(
    "value",
    [
        True,
        -1,
        MAX_UINT64 + 1,
        1.0,
        None,
        bytearray(b"ab"),
        memoryview(b"ab"),
        "\ud800",
        {"a": 1},
        {1: 1, "a": 1},
        {-1: 1},
        {True: 1},
        {b"a": 1},
        {1, 2},
        (((((0,),),),),),
        (0,) * MAX_VALUES,
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_encoder_writes_nothing_that_the_decoder_refuses(value: Value) -> None:
    with pytest.raises(LocalProtocolError):
        encode(value)


def test_values_are_counted() -> None:
    most = tuple([0] * (MAX_VALUES - 1))
    assert decode(encode(most)) == most
    with pytest.raises(RemoteProtocolError) as raised:
        decode(b"\x99" + MAX_VALUES.to_bytes(2, "big") + bytes(MAX_VALUES))
    assert raised.value.reason is Reason.OUT_OF_BOUNDS


@pytest.fixture(scope="module")
def alone() -> Iterator[ProcessPoolExecutor]:
    with other_process() as process:
        yield process


@given(
    head=st.sampled_from([b"\x5a", b"\x7a", b"\x9a", b"\xba", b"\x5b", b"\x7b", b"\x9b", b"\xbb"]),
    length=st.integers(2**24, 2**32 - 1),
    rest=st.integers(0, 4096),
)
@example(head=b"\x9b", length=2**32 - 1, rest=0)
def test_huge_announced_lengths_allocate_no_memory(
    alone: ProcessPoolExecutor, head: bytes, length: int, rest: int
) -> None:
    size = 8 if head[0] & 0x1F == 27 else 4
    wide = length << 32 if size == 8 else length
    data = head + wide.to_bytes(size, "big") + bytes(rest)
    assert _assert_cheap_refusal(alone, data) is Reason.NOT_CANONICAL


@pytest.mark.parametrize("filler", ["00", "80", "a0", "40", "60", "8100", "81a0", "4161", "1a00010000"])
@pytest.mark.parametrize("shape", ["flat", "nested"])
def test_packed_messages_stay_small_in_memory(alone: ProcessPoolExecutor, filler: str, shape: str) -> None:
    item = bytes.fromhex(filler)
    row = _array_head(1000) + item * 1000
    rows = (MAX_ENVELOPE_BYTES - 8) // (len(row) if shape == "nested" else len(item))
    data = _array_head(rows) + (row if shape == "nested" else item) * rows
    assert _assert_cheap_refusal(alone, data) is Reason.OUT_OF_BOUNDS


@given(depth=st.integers(5, 100_000), level=st.sampled_from([b"\x81", b"\xa1\x00", b"\xa1", b"\x82\x00"]))
def test_deep_nesting_needs_no_stack(alone: ProcessPoolExecutor, depth: int, level: bytes) -> None:
    _assert_cheap_refusal(alone, (level * depth)[:MAX_ENVELOPE_BYTES])


def _assert_cheap_refusal(alone: ProcessPoolExecutor, data: bytes) -> Reason:
    reason, peak_bytes = alone.submit(refusal, data).result()
    assert reason is not None
    assert peak_bytes <= 4 * len(data) + 1024 * 1024
    return reason


def _array_head(length: int) -> bytes:
    head = encode(length)
    return bytes((head[0] | 0x80,)) + head[1:]


def _tuples(value: object) -> object:
    """Return cbor2's value with arrays as tuples, which is what ``decode`` builds."""
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
