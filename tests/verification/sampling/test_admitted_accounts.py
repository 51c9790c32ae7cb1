"""Whose text the canary does not admit is not drawn, known or new."""

from support.swarm import EPOCH, Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

KNOWN, NEW, OTHER = Identity(1), Identity(2), Identity(3)


def test_only_admitted_accounts_have_a_share_of_the_places() -> None:
    desk = VerificationHarness((KNOWN, NEW, OTHER), manifest=make_manifest(suite=make_suite()))
    desk.trust(KNOWN)
    accounts = [each.account for each in (KNOWN, NEW, OTHER)]
    everybody = desk.sampler.shares(accounts, EPOCH)
    assert set(everybody) == set(accounts)
    desk.sampler.admits = {KNOWN.account, OTHER.account}.__contains__
    assert set(desk.sampler.shares(accounts, EPOCH)) == {KNOWN.account, OTHER.account}
    desk.sampler.quarantine = frozenset({(OTHER.account, 0)})
    assert set(desk.sampler.shares(accounts, EPOCH)) == {KNOWN.account}
