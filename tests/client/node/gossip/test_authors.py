"""The account of a rollout names its turn, whichever of its node keys signed; other messages have none."""

from support.swarm import Identity, make_manifest

from sapo_client.node.gossip.authors import author_of

MANIFEST = make_manifest()
OTHER = make_manifest(epoch_seconds=MANIFEST.epoch_seconds + 1)
ALICE = Identity(1)


def test_a_rollout_is_its_accounts() -> None:
    name = author_of(MANIFEST.swarm_id)
    keys = [Identity(1, key=key) for key in range(3)]
    rollouts = [one.seal(MANIFEST, one.rollout()).to_bytes() for one in keys]
    assert len(set(rollouts)) == 3
    assert [name(message) for message in rollouts] == [ALICE.account.hex()] * 3


def test_others_are_nobodys() -> None:
    name = author_of(MANIFEST.swarm_id)
    rollout = ALICE.seal(MANIFEST, ALICE.rollout()).to_bytes()
    foreign = ALICE.seal(OTHER, ALICE.rollout()).to_bytes()
    certificate = ALICE.certificate(MANIFEST).to_bytes()
    messages = (b"", b"\xa0", foreign, certificate, rollout[:-1])
    assert [name(message) for message in messages] == [None] * 5
