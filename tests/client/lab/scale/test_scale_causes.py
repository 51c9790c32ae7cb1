"""Lost and late groups get the cause that their copies show; shares above a cap are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sapo_client.lab.scale.batches import POLICY, cap_violations
from sapo_client.lab.scale.traces import Cause, Connectivity, Traces
from sapo_client.swarm.simulated.copies import SentCopy, Way
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.origins import Network, no_network

GROUP = b"group"
CONNECTIVITY = Connectivity(honest_peers=2, honest_neighbours=1, heard_seconds=100.0)
COPY = SentCopy("author", "node", GROUP, Way.OWN, 0.0, 31.0)


def traces(connectivity: Connectivity = CONNECTIVITY) -> Traces:
    """Return traces of one group that one node should receive."""
    found = Traces()
    found.begin(GROUP, "author", 10.0, {"node": connectivity})
    return found


def missed(traced: Traces) -> tuple[Cause, ...]:
    """Return the causes after the node did not receive the group."""
    traced.end(GROUP, ["node"], [])
    return traced.missed_causes()


def late(traced: Traces) -> str:
    """Return the cause after the node received the group late."""
    traced.end(GROUP, [], ["node"])
    (cause,) = traced.late_causes()
    return cause.text


def test_copies_in_transit_are_distinguished_from_missing_ones() -> None:
    text = "copies were still in transit at the deadline, or their connection had ended"
    one = traces()
    one.sent(COPY)
    assert missed(one) == (Cause(text, 1, 0),)
    new = traces(replace(CONNECTIVITY, heard_seconds=6.0))
    new.sent(COPY)
    new.sent(replace(COPY, sender="other"))
    assert missed(new) == (Cause(text, 1, 1),)


def test_a_refused_copy_names_its_rule() -> None:
    one = traces()
    one.sent(replace(COPY, due_seconds=10.1))
    one.refused(GROUP, "node", "author_introduced")
    assert missed(one) == (Cause("a copy was received and refused: author_introduced", 1, 0),)


@pytest.mark.parametrize(
    ("connectivity", "others", "text"),
    [
        (replace(CONNECTIVITY, honest_peers=0), ["other"], "no honest peer is subscribed to the island"),
        (CONNECTIVITY, [], "no node received it: no honest peer of its author is subscribed to the island"),
        (
            replace(CONNECTIVITY, honest_neighbours=0),
            ["other"],
            "no honest neighbour in the mesh, and no announcement led to a request",
        ),
        (CONNECTIVITY, ["other"], "its honest mesh neighbours had not received it either"),
    ],
)
def test_without_a_copy_the_connectivity_gives_the_cause(
    connectivity: Connectivity, others: list[str], text: str
) -> None:
    one = traces(connectivity)
    for other in others:
        one.admitted(GROUP, other, "author", 10.1)
    assert missed(one) == (Cause(text, 1, 0),)


def test_the_cause_of_a_late_group_is_its_slowest_hop() -> None:
    one = traces()
    for sender, receiver, way, due in (
        ("author", "relay", Way.OWN, 10.125),
        ("relay", "node", Way.REQUESTED, 13.0),
    ):
        one.sent(SentCopy(sender, receiver, GROUP, way, 0.0, due))
        one.admitted(GROUP, receiver, sender, due)
    assert late(one) == "no mesh neighbour had it sooner; the first copy was sent on request"


def test_a_busy_uplink_before_the_last_hop_is_the_cause() -> None:
    one = traces()
    for sender, receiver, waited, due in (("author", "relay", 2.5, 13.0), ("relay", "node", 0.0, 13.1)):
        one.sent(SentCopy(sender, receiver, GROUP, Way.FORWARDED, waited, due))
        one.admitted(GROUP, receiver, sender, due)
    assert late(one) == "the uplink of a node on the path was busy"


@pytest.mark.parametrize(
    ("way", "repeats", "earlier", "text"),
    [
        (Way.FORWARDED, 2, 0, "packets were lost and sent again"),
        (
            Way.FORWARDED,
            0,
            0,
            "a copy forwarded in the mesh waited for earlier packets that were sent again",
        ),
        (Way.REQUESTED, 0, 1, "packets of a copy were lost; another copy was sent on request"),
    ],
)
def test_lost_packets_are_the_cause(way: Way, repeats: int, earlier: int, text: str) -> None:
    one = traces()
    one.sent(replace(COPY, sender="other", repeats=earlier))
    one.sent(SentCopy("author", "node", GROUP, way, 0.0, 13.0, repeats))
    one.admitted(GROUP, "node", "author", 13.0)
    assert late(one) == text


def test_shares_above_a_cap_are_counted() -> None:
    accounts = [Account(bytes([number]) * 20) for number in range(8)]
    even = dict.fromkeys(accounts, POLICY.account_cap)
    assert cap_violations(even, POLICY, lambda _: False, no_network) == 0
    one_more = even | {accounts[0]: POLICY.account_cap + 0.01}
    assert cap_violations(one_more, POLICY, lambda _: False, no_network) == 2  # the account, and the whole
    assert cap_violations(even, POLICY, lambda one: one == accounts[0], no_network) == 1
    assert cap_violations(even, POLICY, lambda _: False, lambda _: Network("52.0.0.0/24")) == 1
