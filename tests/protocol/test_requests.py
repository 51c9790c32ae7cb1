"""Responses to requests: an array of messages, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import values
from support.verdicts import ruling_of

from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.requests import parse_response, to_response
from sapo_protocol.rules import Rule


@given(st.lists(st.binary(max_size=40), max_size=20).map(tuple))
def test_a_response_round_trips(messages: tuple[bytes, ...]) -> None:
    assert parse_response(to_response(messages)) == messages


@given(values())
def test_any_other_value_is_refused_by_its_rule(value: Value) -> None:
    outcome = ruling_of(parse_response, encode(value))
    if isinstance(value, tuple | list) and all(isinstance(item, bytes) for item in value):
        assert outcome == tuple(value)
    else:
        assert outcome is Rule.RESPONSE_TYPES
