"""The jail's messages: any bytes of a hostile child are a valid reply to the request, or malformed."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_verification.jail.messages import (
    Checked,
    Failure,
    MalformedMessage,
    Request,
    Setup,
    decode_reply,
    decode_request,
    decode_setup,
    encode_reply,
    encode_request,
    encode_setup,
    frame,
    frame_length,
)
from sapo_verification.suites.catalogue import FAMILIES, family

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CHECKED = st.builds(Checked, TEXT, st.lists(st.sampled_from([0.0, 1.0]), max_size=16).map(tuple))


@given(st.builds(Request, st.integers(0, 8), st.integers(0, 2**31 - 1), st.lists(st.binary()).map(tuple)))
def test_a_request_is_decoded_as_it_was_encoded(request: Request) -> None:
    assert decode_request(encode_request(request)) == request


@given(CHECKED)
def test_a_result_is_decoded_as_it_was_encoded(checked: Checked) -> None:
    assert decode_reply(encode_reply(checked), len(checked.rewards)) == checked


@pytest.mark.parametrize("failure", list(Failure))
def test_a_failure_is_decoded_as_it_was_encoded(failure: Failure) -> None:
    assert decode_reply(encode_reply(failure), 8) is failure


def test_a_setup_is_decoded_as_it_was_encoded() -> None:
    setup = Setup(tuple(family(name, "nano") for name in FAMILIES), 2.0, ("a.module",))
    assert decode_setup(encode_setup(setup)) == setup


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 60_000,
        b"1" * 60_000,
        b'{"failure":"won"}',
        b'{"failure":["timeout"]}',
        b'{"prompt":"x"}',
        b'{"prompt":"x","rewards":[1]}',
        b'{"prompt":"x","rewards":[1,1,1]}',
        b'{"prompt":"x","rewards":[1,true]}',
        b'{"prompt":"x","rewards":[1,1.0]}',
        b'{"prompt":"x","rewards":[1,2]}',
        b'{"prompt":"x","rewards":[1,NaN]}',
        b'{"prompt":"x","rewards":"11"}',
        b'{"prompt":"x","rewards":{"0":1,"1":1}}',
        b'{"prompt":7,"rewards":[1,1]}',
        b'{"prompt":"\\ud800","rewards":[1,1]}',
        b'{"prompt":"x","rewards":[1,1],"more":0}',
        b'{"prompt":"x","rewards":[1,1],"failure":"crash"}',
    ],
)
def test_a_reply_that_fits_no_request_of_two_completions(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_reply(body, 2)


JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)


@given(st.binary() | JSON)
def test_any_bytes_are_a_reply_or_malformed(body: bytes) -> None:
    try:
        reply = decode_reply(body, 1)
    except MalformedMessage:
        return
    assert isinstance(reply, Failure) or reply.rewards in ((0.0,), (1.0,))


def test_a_frame_announces_its_length_within_the_limit() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert frame_length(b"\x00\x00\x00\x03", 3) == 3
    with pytest.raises(MalformedMessage):
        frame_length(b"\x00\x00\x00\x04", 3)


def test_deep_nesting_is_malformed_whatever_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)  # as libraries of the node do
    try:
        with pytest.raises(MalformedMessage):
            decode_reply(b"[" * 200_000, 1)
    finally:
        sys.setrecursionlimit(before)
