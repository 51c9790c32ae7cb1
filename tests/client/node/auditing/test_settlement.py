"""The turns to propose, and until when each is open."""

from support.swarm import make_manifest

from sapo_client.node.auditing.settlement import grace_seconds, turn_to_propose


def test_a_turn_is_open_in_its_first_half():
    manifest = make_manifest(epoch_seconds=60)
    assert grace_seconds(manifest) == 6.0
    ages = (0, 6, 11.9, 12, 14.9, 15, 17.9, 18, 20.9, 21)
    assert [turn_to_propose(manifest, age) for age in ages] == [
        *((-2, False), (-1, False), (-1, False)),
        *((0, True), (0, True), (0, False), (0, False)),
        *((1, True), (1, True), (1, False)),
    ]
