"""A full pool removes entries of the account with most entries, so that a flood displaces only itself."""

from collections import Counter
from functools import partial

from support.swarm import EPOCH, Identity
from support.verification_harness import VerificationHarness

from sapo_protocol.identifiers import ContentId
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.sampling.sampler import SamplingPolicy, capped_shares
from sapo_verification.types import AdmittedRollout

HONEST = [Identity(number) for number in range(20)]
FLOOD = [Identity(number) for number in range(100, 105)]
EACH = 50
"""Rollouts of an honest account."""


def group(author: Identity, slot: int) -> AdmittedRollout:
    """Return a rollout as admission would build it; to sign six thousand would take most of the time."""
    number = author.number * 2**16 + slot
    return AdmittedRollout(ContentId(number.to_bytes(32, "big")), author.rollout(slot=slot))


def test_five_accounts_that_send_all_they_may_displace_themselves() -> None:
    """All are known; each of the five sends its whole quota of an epoch after the honest ones sent theirs."""
    harness = VerificationHarness(())
    harness.trust(*HONEST, *FLOOD)
    sent = [group(author, slot) for author in HONEST for slot in range(EACH)]
    for admitted in sent:
        harness.pool.offer(admitted)
    shares = partial(capped_shares, policy=SamplingPolicy())
    of_both = shares(harness.reputation.weigh([one.account for one in (*HONEST, *FLOOD)], EPOCH))
    for slot in range(PoolLimits().per_account):
        for author in FLOOD:
            harness.pool.offer(group(author, slot))
    honest = {author.account for author in HONEST}
    assert [one for one in harness.pool.waiting() if one.account in honest] == sent
    places = Counter(one.account for one in harness.pool.waiting() if one.account not in honest)
    assert sorted(places.values()) == [619, 619, 619, 619, 620], "they share what the others leave"
    assert shares(harness.reputation.weigh(harness.pool.accounts(), EPOCH)) == of_both


def test_the_fullest_account_loses_its_own_oldest() -> None:
    harness = VerificationHarness((), limits=PoolLimits(rollouts=4))
    one, other = HONEST[:2]
    harness.trust(one, other)
    for author, slot in ((one, 0), (other, 0), (one, 1), (other, 1), (other, 2)):
        harness.pool.offer(group(author, slot))
    assert list(harness.pool.waiting()) == [group(one, 0), group(one, 1), group(other, 1), group(other, 2)]
    harness.pool.offer(group(one, 2))
    assert list(harness.pool.waiting()) == [group(one, 1), group(other, 1), group(other, 2), group(one, 2)]
    harness.pool.offer(group(HONEST[2], 0))
    rest = [group(one, 1), group(other, 2), group(one, 2), group(HONEST[2], 0)]
    assert list(harness.pool.waiting()) == rest, "of two equal ones the one that has had so many for longer"
