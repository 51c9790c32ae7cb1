"""A node's reachability from peers' answers to dial-back requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.reachability import (
    DialAnswer,
    DialAnswers,
    DialResult,
    Reachability,
    encode_port,
    is_proven,
    parse_answer,
    parse_port,
)

HOST = "203.0.113.7"


def answers(*results: DialResult) -> DialAnswers:
    found = DialAnswers()
    for number, result in enumerate(results):
        found.add(f"peer {number}", DialAnswer(result, HOST))
    return found


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ("", Reachability.UNKNOWN),
        ("b", Reachability.UNKNOWN),
        ("n", Reachability.UNKNOWN),
        ("y", Reachability.REACHABLE),
        ("nn", Reachability.UNREACHABLE),
        ("ny", Reachability.REACHABLE),
        ("nnybb", Reachability.UNREACHABLE),
        ("nnyy", Reachability.REACHABLE),
        ("nnnnn" + "yyyyy", Reachability.REACHABLE),
    ],
)
def test_half_of_the_last_answers_decide(results: str, state: Reachability) -> None:
    by_letter = {"y": DialResult.REACHED, "n": DialResult.REFUSED, "b": DialResult.BUSY}
    assert answers(*(by_letter[letter] for letter in results)).state() is state


def test_peers_of_the_local_network_do_not_count_for_the_router() -> None:
    found = DialAnswers()
    for number in range(3):
        found.add(f"neighbour {number}", DialAnswer(DialResult.REACHED, "192.168.1.5"))
    assert found.state() is Reachability.REACHABLE
    for number in range(2):
        found.add(f"peer {number}", DialAnswer(DialResult.REFUSED, HOST))
    assert found.state() is Reachability.UNREACHABLE
    found.forget()
    assert found.state() is Reachability.UNKNOWN


@pytest.mark.parametrize(
    ("came", "chosen", "expected"),
    [
        ("", "", False),
        ("203.0.113.7", "", False),
        ("203.0.113.7 203.0.113.7 203.0.113.8 203.0.200.9", "", False),
        ("203.0.113.7 198.51.100.1", "", True),
        ("203.0.113.7 2001:db8::1", "", True),
        ("2001:db8:1::1 2001:db8:2::1", "", False),
        ("", "203.0.113.7 198.51.100.1", False),
        ("203.0.113.7", "198.51.100.1", False),
        ("192.168.1.5 192.168.1.6", "", True),
        ("192.168.1.5 192.168.1.6", "198.51.100.1", False),
        ("192.168.1.5 192.168.1.6 203.0.113.7", "", False),
        ("127.0.0.1 127.0.0.1", "", False),
    ],
)
def test_inbound_peers_of_two_networks_prove_reachability(came: str, chosen: str, expected: bool) -> None:
    """Whatever number of peers an attacker has in one network, and whatever neighbours a node has."""
    assert is_proven(came.split(), [*came.split(), *chosen.split()]) is expected


def test_each_peer_counts_once() -> None:
    found = DialAnswers()
    for _ in range(5):
        found.add("a liar", DialAnswer(DialResult.REFUSED, HOST))
    assert found.state() is Reachability.UNKNOWN


def test_an_address_at_which_two_peers_reached_a_node_is_its_own() -> None:
    found = answers(DialResult.REACHED, DialResult.REFUSED)
    for _ in range(2):
        found.add("a liar", DialAnswer(DialResult.REACHED, "192.0.2.1"))
    assert found.reached_hosts() == ()
    found.add("a third", DialAnswer(DialResult.REACHED, HOST))
    assert found.reached_hosts() == (HOST,)


@given(st.integers(1, 0xFFFF), st.sampled_from(DialResult), st.ip_addresses().map(str))
def test_encoded_requests_and_responses_are_parsed_back(port: int, result: DialResult, host: str) -> None:
    answer = DialAnswer(result, host)
    assert (parse_port(encode_port(port)), parse_answer(answer.encode())) == (port, answer)


@given(st.binary(max_size=64))
def test_other_bytes_are_neither_request_nor_response(payload: bytes) -> None:
    port, answer = parse_port(payload), parse_answer(payload)
    assert port is None or encode_port(port) == payload
    assert answer is None or answer.encode() == payload


@pytest.mark.parametrize("payload", [b"", b"0", b"65536", b"-1", b"80 ", b"4001\n", "٤".encode()])
def test_invalid_ports_are_refused(payload: bytes) -> None:
    assert parse_port(payload) is None
