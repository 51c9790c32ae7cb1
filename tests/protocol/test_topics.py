"""Topics and request protocols: each name belongs to one swarm and one use."""

import inspect

from sapo_protocol import topics
from sapo_protocol.identifiers import SwarmId


def test_names_differ_by_use_and_by_swarm() -> None:
    uses = [use for _, use in inspect.getmembers(topics, inspect.isfunction)]
    uses = [use for use in uses if not use.__name__.startswith("_")]
    names = {use(SwarmId(bytes((n,)) * 32)) for use in uses for n in (1, 2)}
    assert len(names) == 2 * len(uses)
    assert all(str(SwarmId(b"\x01" * 32)) in use(SwarmId(b"\x01" * 32)) for use in uses)


def test_the_rollouts_topic_of_a_worked_example() -> None:
    assert topics.rollouts_topic(SwarmId(b"\x01" * 32)) == f"sapo/1/{'01' * 32}/rollouts"


def test_islands_beyond_the_first_are_named() -> None:
    swarm_id = SwarmId(b"\x01" * 32)
    for use in (topics.rollouts_topic, topics.certificates_topic, topics.equivocations_topic):
        assert use(swarm_id, 0) == use(swarm_id)
        assert use(swarm_id, 17) == f"{use(swarm_id)}/17"
