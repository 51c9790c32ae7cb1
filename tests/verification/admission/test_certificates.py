"""The store of certificates: bounded, and admitted again after a restart."""

from pathlib import Path

import pytest
from hypothesis import given
from support.strategies import bit_flips, damaged
from support.swarm import (
    GENESIS_SECONDS,
    Identity,
    make_certificates,
    make_chain_manifest,
    make_manifest,
    moment,
)
from support.verdicts import reason_of, verdict_of

from sapo_protocol.certificate import open_certificate
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.errors import Reason, Verdict
from sapo_verification.admission.certificates import MAX_NODES_PER_ACCOUNT, CertificateStore
from sapo_verification.reputation.penalties import verdict

MANIFEST = make_manifest()
NOW = moment(MANIFEST)
ALICE, MALLORY = Identity(1), Identity(2)
MESSAGE = ALICE.certificate(MANIFEST).to_bytes()


def test_a_certificate_introduces_its_node_for_its_account() -> None:
    store = CertificateStore(MANIFEST)
    assert reason_of(store.require, ALICE.node, ALICE.account, NOW) is Reason.CERTIFICATE_UNKNOWN
    certificate = store.admit(MESSAGE, NOW)
    assert certificate == open_certificate(ALICE.certificate(MANIFEST), MANIFEST.binding_domain)
    store.require(ALICE.node, ALICE.account, NOW)
    assert reason_of(store.require, ALICE.node, MALLORY.account, NOW) is Reason.CERTIFICATE_UNKNOWN
    assert reason_of(store.require, MALLORY.node, ALICE.account, NOW) is Reason.CERTIFICATE_UNKNOWN
    assert (store.envelopes(), store.accounts_of(ALICE.node)) == ((MESSAGE,), (ALICE.account,))
    assert store.accounts_of(MALLORY.node) == ()


def _malformed() -> bytes:
    """Return a certificate of Mallory's node with the signature of Alice's account for her own node."""
    payload = ALICE.certificate(MANIFEST).payload.replace(ALICE.node, MALLORY.node)
    return seal(Kind.CERTIFICATE, MANIFEST.swarm_id, payload, MALLORY.seed).to_bytes()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (MESSAGE, None),
        (b"", Reason.NOT_CANONICAL),
        (bytes(200_000), Reason.OVERSIZE),
        (ALICE.message(MANIFEST), Reason.WRONG_KIND),
        (ALICE.certificate(make_chain_manifest()).to_bytes(), Reason.WRONG_SWARM),
        (_malformed(), Reason.CERTIFICATE_MALFORMED),
        (
            seal(
                Kind.CERTIFICATE, MANIFEST.swarm_id, ALICE.certificate(MANIFEST).payload, MALLORY.seed
            ).to_bytes(),
            Reason.BAD_SIGNATURE,
        ),
        (ALICE.certificate(MANIFEST, not_after=int(NOW)).to_bytes(), Reason.CERTIFICATE_EXPIRED),
        (ALICE.certificate(MANIFEST, not_before=int(NOW) + 1).to_bytes(), Reason.CERTIFICATE_EXPIRED),
    ],
)
def test_each_message_has_its_reason(message: bytes, reason: Reason | None) -> None:
    store = CertificateStore(MANIFEST)
    assert reason_of(store.admit, message, NOW) is reason
    assert len(store) == (1 if reason is None else 0)


def test_a_certificate_counts_as_seen_unless_it_lasts_longer() -> None:
    store = make_certificates(MANIFEST, ALICE)
    shorter = ALICE.certificate(MANIFEST, not_after=GENESIS_SECONDS + 1000).to_bytes()
    longer = ALICE.certificate(MANIFEST, not_after=GENESIS_SECONDS + 100_000).to_bytes()
    reasons = [reason_of(store.admit, message, NOW) for message in (MESSAGE, shorter, longer, MESSAGE)]
    assert reasons == [Reason.SEEN, Reason.SEEN, None, Reason.SEEN]
    assert store.envelopes() == (longer,)


def test_a_certificate_that_is_not_valid_yet_is_replaced_by_a_valid_one() -> None:
    """It was made and admitted while both clocks were ahead; now both are right again."""
    store, ahead = CertificateStore(MANIFEST), int(NOW) + 7200
    early = ALICE.certificate(MANIFEST, ahead - 60, ahead + 86_400).to_bytes()
    right = ALICE.certificate(MANIFEST, int(NOW) - 60, int(NOW) + 86_400).to_bytes()
    assert [reason_of(store.admit, early, ahead), reason_of(store.admit, right, NOW)] == [None, None]
    store.require(ALICE.node, ALICE.account, NOW)
    assert store.envelopes() == (right,)


def test_an_expired_certificate_is_refused() -> None:
    store = make_certificates(MANIFEST, ALICE)
    last = GENESIS_SECONDS + 86_400
    store.require(ALICE.node, ALICE.account, last - 1)
    assert reason_of(store.require, ALICE.node, ALICE.account, last) is Reason.CERTIFICATE_EXPIRED


def test_a_fifth_key_of_an_account_displaces_the_first() -> None:
    keys = [Identity(1, key) for key in range(MAX_NODES_PER_ACCOUNT + 1)]
    store = make_certificates(MANIFEST, MALLORY, *keys)
    known = [reason_of(store.require, key.node, key.account, NOW) is None for key in keys]
    assert known == [False, True, True, True, True]
    store.require(MALLORY.node, MALLORY.account, NOW)


def test_the_book_is_bounded() -> None:
    store = CertificateStore(MANIFEST, max_certificates=3, key=bytes(32))
    people = [Identity(number) for number in range(10, 16)]
    kept = []
    for identity in people:
        store.admit(identity.certificate(MANIFEST).to_bytes(), NOW)
        store.require(identity.node, identity.account, NOW)  # the newest is never the one that is dropped
        kept.append(store.pairs())
    assert [len(pairs) for pairs in kept] == [1, 2, 3, 3, 3, 3]
    later = CertificateStore(MANIFEST, max_certificates=3, key=bytes(range(32)))
    for identity in people:
        later.admit(identity.certificate(MANIFEST).to_bytes(), NOW)
    assert set(later.pairs()) != set(kept[-1]), "no attacker knows the lots"


def test_a_flood_of_accounts_drops_no_needed_certificate() -> None:
    """The attacker makes many times as many accounts as a node keeps certificates of."""
    own, auditor, known = Identity(3), Identity(4), Identity(5)
    store = CertificateStore(
        MANIFEST, max_certificates=5, own=own.account, is_newcomer=lambda account: account != known.account
    )
    store.standing.exempt = frozenset({auditor.account})
    needed = [(one.node, one.account) for one in (own, auditor, known)]
    for identity in (own, auditor, known, *(Identity(number) for number in range(10, 40))):
        store.admit(identity.certificate(MANIFEST).to_bytes(), NOW)
    assert store.pairs()[:3] == tuple(needed)
    assert len(store) == 5


def test_only_of_known_accounts_the_least_recently_received_is_dropped() -> None:
    own = Identity(3)
    store = CertificateStore(MANIFEST, max_certificates=3, own=own.account, is_newcomer=lambda _: False)
    people = [own, *(Identity(number) for number in range(10, 14))]
    for identity in people:
        store.admit(identity.certificate(MANIFEST).to_bytes(), NOW)
    assert store.pairs() == tuple((one.node, one.account) for one in (own, *people[-2:]))


def test_certificates_of_newcomers_are_evicted_by_lot() -> None:
    """Of six newcomers three keep theirs; by the order of arrival the first would keep none."""
    people = [Identity(number) for number in range(10, 16)]
    messages = [identity.certificate(MANIFEST).to_bytes() for identity in people]
    survived = 0
    for start in range(32):
        store = CertificateStore(MANIFEST, max_certificates=3, key=bytes([start]) * 32)
        for message in messages:
            store.admit(message, NOW)
        survived += bool(store.accounts_of(people[0].node))
    assert 8 <= survived <= 18  # two fifths of 32 are expected, for the newest stays


def test_renewals_of_one_key_are_limited() -> None:
    """Each lasts a second longer than the one before."""
    store, end = make_certificates(MANIFEST, ALICE), GENESIS_SECONDS + 86_400
    renewals = [
        ALICE.certificate(MANIFEST, not_after=end + since).to_bytes() for since in (1, 60, 3599, 3600, 3601)
    ]
    reasons = [reason_of(store.admit, message, NOW) for message in renewals]
    assert reasons == [Reason.SEEN] * 3 + [None, Reason.SEEN]


def test_a_restart_validates_stored_certificates_again(tmp_path: Path) -> None:
    path = tmp_path / "certificates.sqlite"
    store = CertificateStore(MANIFEST, path)
    short = MALLORY.certificate(MANIFEST, not_after=int(NOW) + 10).to_bytes()
    for message in (MESSAGE, short):
        store.admit(message, NOW)
    later = CertificateStore(MANIFEST, path)
    assert (later.restore(NOW + 10), later.envelopes()) == (1, (MESSAGE,))
    assert CertificateStore(MANIFEST, path).restore(NOW) == 1, "the expired one was deleted"
    assert CertificateStore(make_chain_manifest(), path).restore(NOW) == 0


def test_no_single_flipped_bit_is_accepted() -> None:
    store = CertificateStore(MANIFEST)
    reasons = [reason_of(store.admit, flipped, NOW) for flipped in bit_flips(MESSAGE)]
    ignored = [reason for reason in reasons if reason is None or verdict(reason) is not Verdict.REJECT]
    assert ignored == [Reason.RESERVED] * 2  # kinds 9 and 17
    assert len(store) == 0


@given(damaged(MESSAGE))
def test_changed_messages_and_noise_are_rejected(changed: bytes) -> None:
    outcome = verdict_of(CertificateStore(MANIFEST).admit, changed, NOW)
    assert (outcome is Verdict.ACCEPT) == (changed == MESSAGE)
