"""FailureVotes: counting one audit at a time gives the same result as counting all at once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.identifiers import Account
from sapo_verification.reputation.failure_votes import FailureVotes

PEOPLE = tuple(Account(bytes((n,)) * 20) for n in range(8))
audits = st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from([None, "crash", "policy"])))


@given(audits, st.integers(0, 8), st.integers(1, 4))
def test_incremental_counts_equal_a_full_count(
    noted: list[tuple[Account, str | None]], least: int, weight: int
) -> None:
    seen: Counter[Account] = Counter()
    votes = FailureVotes(lambda account: seen[account] >= weight)
    for account, reason in noted:
        seen[account] += 1
        votes.note(account, reason)
    established = {account for account in seen if seen[account] >= weight}
    voters = established if len(established) >= least else set(seen)
    for reason in ("crash", "policy"):
        failures = Counter(account for account, failed in noted if failed == reason)
        failing = {account for account in voters if 2 * failures[account] > seen[account]}
        assert votes.count(reason, least) == (len(failing), len(voters))
    assert votes.failed() == tuple(sorted({reason for _, reason in noted if reason}))


def test_an_account_that_gained_weight_elsewhere_is_counted_when_recounted() -> None:
    weighty: set[Account] = set()
    votes = FailureVotes(weighty.__contains__)
    for account in PEOPLE[:3]:
        votes.note(account, "crash")
    weighty.update(PEOPLE[:4])
    assert votes.count("crash", 1) == (3, 3), "nobody is established yet: everybody votes"
    for account in PEOPLE[:4]:
        votes.recount(account)
    assert votes.count("crash", 1) == (3, 3), "who was not audited in the epoch has no vote"
    assert votes.count("policy", 1) == (0, 3)
