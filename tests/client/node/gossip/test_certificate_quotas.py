"""How many certificates of an account are taken from gossip, and which messages that concerns."""

from support.swarm import Identity, make_manifest

from sapo_client.node.gossip.certificate_quotas import CertificateQuotas

MANIFEST = make_manifest()
OTHER = make_manifest(epoch_seconds=MANIFEST.epoch_seconds + 1)
ALICE, BOB = Identity(1), Identity(2)
NOW = 1000.0


def certificate(who: Identity, key: int = 0) -> bytes:
    return Identity(who.number, key=key).certificate(MANIFEST).to_bytes()


def test_eight_at_once_and_one_more_in_ten_minutes() -> None:
    quotas = CertificateQuotas(MANIFEST.swarm_id)
    allowed = []
    for key in range(10):
        allowed.append(quotas.allows(certificate(ALICE, key), NOW))
        quotas.count(ALICE.account, NOW)
    later = [quotas.allows(certificate(ALICE), NOW + seconds) for seconds in (599, 600)]
    assert (allowed, later) == ([True] * 8 + [False] * 2, [False, True])
    assert quotas.allows(certificate(BOB), NOW)


def test_only_what_was_accepted_counts() -> None:
    quotas = CertificateQuotas(MANIFEST.swarm_id)
    assert all(quotas.allows(certificate(ALICE), NOW) for _ in range(20))


def test_what_is_no_certificate_of_this_swarm_is_left_to_validation() -> None:
    quotas = CertificateQuotas(MANIFEST.swarm_id)
    for _ in range(8):
        quotas.count(ALICE.account, NOW)
    foreign = ALICE.certificate(OTHER).to_bytes()
    rollout = ALICE.seal(MANIFEST, ALICE.rollout()).to_bytes()
    messages = (b"", b"\xa0", foreign, rollout, certificate(ALICE)[:-1])
    assert [quotas.allows(message, NOW) for message in messages] == [True] * 5
    assert not quotas.allows(certificate(ALICE), NOW)
