"""What is kept when a table or a list is full: the newest of every flow, and the peers that harm most."""

from dataclasses import replace

from sapo_client.swarm.fair_queue import newest_in_turns
from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_score import PeerScores, PeerStanding, Severity


def test_the_oldest_item_is_kept_if_it_is_the_newest_of_its_flow() -> None:
    items = ["b0", "a1", "a2", "a3"]
    assert newest_in_turns(items, lambda item: item[0], 2) == ["b0", "a3"]
    assert newest_in_turns(["b0", "c1", "a2", "a3", "a4"], lambda item: item[0], 4) == [
        "b0",
        "c1",
        "a3",
        "a4",
    ]


def test_a_ban_that_has_ended_keeps_no_place_before_a_worse_score() -> None:
    limits = replace(ScoreLimits(), max_peers=4)
    scores = PeerScores(limits)
    while scores.standing("once", 0.0) is not PeerStanding.BANNED:
        scores.penalise("once", Severity.LOW, 0.0)
    later = 40 * limits.half_life_seconds
    assert scores.standing("once", later) is PeerStanding.GOOD
    for peer in ("a", "b", "c", "d"):
        scores.penalise(peer, Severity.LOW, later)
    assert {peer: scores.score(peer, later) for peer in ("a", "b", "c", "d")} == dict.fromkeys(
        "abcd", float(Severity.LOW.value)
    )
