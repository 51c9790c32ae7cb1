"""Suspended penalties: a fault shared by most accounts is attributed to this node."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, Reputation
from sapo_verification.reputation.penalties import HARD, SOFT
from sapo_verification.reputation.suspension import MIN_VOTERS, REMEMBERED_EPOCHS, is_probably_ours

PEOPLE = tuple(Account(bytes((n,)) * 20) for n in range(1, 10))
NOW = 50
CRASH = Reason.CHECKER_CRASH

Audit = tuple[Account, Reason | None]


def established(people: Iterable[Account] = PEOPLE) -> Reputation:
    reputation = Reputation()
    for account in people:
        for _ in range(AUDITS_BEFORE_WEIGHT):
            reputation.record_good(account, 0, NOW - 10)
    return reputation


def tell(reputation: Reputation, audits: Iterable[Audit], epoch: int = NOW) -> None:
    for account, reason in audits:
        if reason is None:
            reputation.record_good(account, 0, epoch)
        else:
            reputation.record_fault(account, 0, epoch, reason)


def bad(reputation: Reputation) -> list[float]:
    return [reputation.evidence(account, NOW).bad for account in PEOPLE]


@pytest.mark.parametrize(
    ("failing", "voters", "ours"),
    [(0, 0, False), (4, 4, False), (5, 5, True), (3, 5, True), (3, 6, False), (4, 6, True), (0, 9, False)],
)
def test_a_check_is_suspended_at_the_stated_share_of_failing_voters(
    failing: int, voters: int, ours: bool
) -> None:
    assert is_probably_ours(failing, voters) is ours


def test_a_check_that_most_accounts_fail_penalises_none_even_retroactively() -> None:
    reputation = established()
    tell(reputation, [(account, CRASH) for account in PEOPLE[: MIN_VOTERS - 1]])
    assert bad(reputation) == [SOFT] * 4 + [0.0] * 5
    assert reputation.suspended(NOW) == ()
    tell(reputation, [(account, CRASH) for account in PEOPLE[MIN_VOTERS - 1 :]])
    assert bad(reputation) == pytest.approx([0.0] * 9)
    assert reputation.suspended(NOW) == (CRASH,)


def test_a_failing_minority_is_penalised() -> None:
    reputation = established()
    tell(reputation, [(account, CRASH) for account in PEOPLE[:MIN_VOTERS]])
    assert reputation.suspended(NOW) == (CRASH,)
    tell(reputation, [(account, None) for account in PEOPLE[MIN_VOTERS:]])
    assert reputation.suspended(NOW) == (CRASH,), "five of nine"
    tell(reputation, [(PEOPLE[0], None)] * 2)
    assert reputation.suspended(NOW) == (), "the first passed more often than it failed"
    assert bad(reputation) == pytest.approx([SOFT] * 5 + [0.0] * 4)


def test_a_suspension_covers_one_check_and_one_epoch() -> None:
    reputation = established()
    tell(reputation, [(account, CRASH) for account in PEOPLE])
    reputation.record_fault(PEOPLE[0], 0, NOW, Reason.TEXT_POLICY)
    reputation.record_fault(PEOPLE[1], 0, NOW + 1, CRASH)
    assert bad(reputation)[:3] == pytest.approx([SOFT, SOFT, 0.0])


def test_the_time_of_the_audit_counts_and_not_the_epoch_of_the_rollout() -> None:
    reputation = established()
    tell(reputation, [(account, None) for account in PEOPLE for _ in range(5)], NOW)
    tell(reputation, [(account, CRASH) for account in PEOPLE[:5]], NOW + 1)
    tell(reputation, [(account, CRASH) for account in PEOPLE[5:]], NOW)
    assert reputation.suspended(NOW + 1) == (CRASH,)
    assert bad(reputation) == pytest.approx([0.0] * 9)
    assert Reputation().suspended(NOW) == ()


def test_the_audit_that_completes_the_vote_may_be_a_passed_one() -> None:
    reputation = established()
    tell(reputation, [(account, CRASH) for account in PEOPLE[:3]])
    tell(reputation, [(account, None) for account in PEOPLE[3:MIN_VOTERS]])
    assert reputation.suspended(NOW) == (CRASH,), "three of five"
    assert bad(reputation) == pytest.approx([0.0] * 9)


def test_accounts_that_fail_only_sometimes_do_not_count_as_failing() -> None:
    reputation = established()
    tell(reputation, [audit for account in PEOPLE for audit in ((account, None), (account, CRASH))])
    assert reputation.suspended(NOW) == ()
    assert bad(reputation) == pytest.approx([SOFT] * 9)


def test_new_accounts_cannot_suspend_a_check() -> None:
    reputation = established(PEOPLE[:MIN_VOTERS])
    crowd = [Account(b"\xee" * 19 + bytes((n,))) for n in range(100)]
    tell(reputation, [(account, None) for account in PEOPLE[:MIN_VOTERS]])
    tell(reputation, [(account, CRASH) for account in crowd])
    assert reputation.suspended(NOW) == ()
    assert {reputation.evidence(account, NOW).bad for account in crowd} == {SOFT}


def test_a_proof_is_never_suspended() -> None:
    reputation = established()
    tell(reputation, [(account, Reason.EQUIVOCATION) for account in PEOPLE])
    assert bad(reputation) == [HARD] * 9
    assert all(reputation.is_banned(account, NOW) for account in PEOPLE)


@given(
    st.lists(
        st.tuples(st.sampled_from(PEOPLE), st.sampled_from([None, CRASH, Reason.TEXT_POLICY])), max_size=30
    ),
    st.integers(0, 2**32),
)
def test_the_order_of_audits_does_not_matter(audits: Sequence[Audit], seed: int) -> None:
    shuffled = list(audits)
    random.Random(seed).shuffle(shuffled)
    one, other = established(), established()
    tell(one, audits)
    tell(other, shuffled)
    assert one.suspended(NOW) == other.suspended(NOW)
    assert bad(one) == pytest.approx(bad(other), abs=1e-9)


def test_stored_votes_are_bounded() -> None:
    reputation = established()
    for epoch in range(NOW, NOW + 20):
        tell(reputation, [(account, CRASH) for account in PEOPLE], epoch)
    for table in ("outcome", "suspended"):
        rows = reputation._connection.execute(f"SELECT DISTINCT epoch FROM {table} ORDER BY epoch").fetchall()
        assert [epoch for (epoch,) in rows] == list(range(NOW + 20 - REMEMBERED_EPOCHS, NOW + 20))


@given(
    st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from([None, CRASH])), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_votes_are_kept_across_a_restart(audits: Sequence[Audit], moment: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "reputation.sqlite"
        running = established()
        tell(running, audits)
        restarted = Reputation(path)
        tell(
            restarted, [(account, None) for account in PEOPLE for _ in range(AUDITS_BEFORE_WEIGHT)], NOW - 10
        )
        tell(restarted, audits[:moment])
        restarted = Reputation(path)
        tell(restarted, audits[moment:])
        assert restarted.suspended(NOW) == running.suspended(NOW)
        assert bad(restarted) == pytest.approx(bad(running), abs=1e-9)


@pytest.mark.parametrize("reason", [Reason.NO_SIGNAL, Reason.NODE_BUSY])
def test_what_has_no_penalty_is_no_failed_check(reason: Reason) -> None:
    """Uninformative groups of everybody are no fault of this node's, and nothing that could be suspended."""
    reputation = established()
    tell(reputation, [(account, reason) for account in PEOPLE])
    assert reputation.suspended(NOW) == ()
    tell(reputation, [(account, CRASH) for account in PEOPLE[:5]] * 2)
    assert reputation.suspended(NOW) == (CRASH,)
