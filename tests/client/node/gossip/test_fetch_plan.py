"""Assignment of rollouts to the peers from which they are fetched."""

from __future__ import annotations

from sapo_client.node.gossip.fetch_plan import PATIENCE_SECONDS, FetchPlan
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.catch_up import MAX_FETCHED

IDS = tuple(ContentId(number.to_bytes(32, "big")) for number in range(100))


def test_rollouts_listed_by_few_peers_are_fetched_first_and_from_one_peer_at_a_time() -> None:
    plan = FetchPlan()
    plan.add("a", IDS[:60])
    plan.add("b", IDS[:50])
    first = plan.take("a", 0.0)
    assert first == (*IDS[50:60], *IDS[: MAX_FETCHED - 10])
    assert plan.take("b", 0.0) == IDS[MAX_FETCHED - 10 : 50]
    assert plan.take("b", 0.0) == ()
    plan.release("a", first)
    assert plan.take("b", 0.0) == IDS[: MAX_FETCHED - 10]


def test_assignments_to_a_slow_peer_expire_within_seconds() -> None:
    plan = FetchPlan()
    plan.add("slow", IDS[:3])
    plan.add("quick", IDS[:3])
    assert plan.take("slow", 0.0) == IDS[:3]
    assert plan.take("quick", PATIENCE_SECONDS - 0.1) == ()
    assert plan.take("quick", PATIENCE_SECONDS) == IDS[:3]
    plan.release("slow", IDS[:3])
    assert plan.take("slow", PATIENCE_SECONDS + 1) == (), "the quick one has been asked since"
    for content_id in IDS[:3]:
        plan.decided(content_id)
    assert (len(plan), plan.has("slow"), plan.has("quick")) == (0, False, False)


def test_rollouts_missing_at_a_peer_are_requested_from_others_or_given_up() -> None:
    plan = FetchPlan()
    plan.add("a", IDS[:2])
    plan.add("b", IDS[:1])
    plan.missed("a", IDS[0])
    plan.missed("a", IDS[1])
    plan.missed("a", IDS[1])
    assert (plan.has("a"), IDS[0] in plan, IDS[1] in plan) == (False, True, False)
    assert plan.take("b", 0.0) == IDS[:1]
    plan.forget("b")
    assert (len(plan), plan.has("b")) == (0, False)


def test_requests_to_a_peer_that_leaves_are_released() -> None:
    plan = FetchPlan()
    plan.add("a", IDS[:2])
    plan.add("b", IDS[:2])
    assert plan.take("a", 0.0) == IDS[:2]
    plan.forget("a")
    assert plan.take("b", 0.0) == IDS[:2]
