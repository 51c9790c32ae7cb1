"""Reputation: own evidence only, between 0 and 1, decaying with time."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.evidence import (
    AUDITS_BEFORE_WEIGHT,
    BAN_EPOCHS,
    DECAY_PER_EPOCH,
    MAX_EVIDENCE,
    SCHEMA,
    AccountStanding,
    Evidence,
    Reputation,
    sum_evidence,
)
from sapo_verification.reputation.penalties import CONSEQUENCES, HARD, SOFT, verdict
from sapo_verification.store import StoreSchema, open_database

ALICE, BOB, CAROL = (Account(bytes((n,)) * 20) for n in (1, 2, 3))
NOW = 100
LATER_REASONS = [
    reason for reason in Reason if verdict(reason) is Verdict.ACCEPT or reason is Reason.EQUIVOCATION
]

evidence = st.builds(
    Evidence,
    good=st.floats(0, 1e6),
    bad=st.floats(0, 1e6),
    audits=st.integers(0, 1000),
    epoch=st.integers(0, 500),
    passed=st.integers(0, 1000),
)


def good(reputation: Reputation, account: Account, groups: int, epoch: int = NOW) -> None:
    for group in range(groups):
        reputation.record_good(account, group % 3, epoch)


@given(evidence)
def test_weights_are_between_zero_and_one(piece: Evidence) -> None:
    assert 0.0 <= piece.weight < 1.0
    assert piece.passed >= AUDITS_BEFORE_WEIGHT or piece.weight == 0.0


@given(evidence, st.floats(0.001, 100))
def test_good_evidence_never_lowers_and_bad_never_raises_a_weight(piece: Evidence, amount: float) -> None:
    better = piece.plus(Evidence(good=amount, epoch=piece.epoch))
    worse = piece.plus(Evidence(bad=amount, epoch=piece.epoch))
    assert worse.weight <= piece.weight + 1e-9
    assert better.weight >= piece.weight - 1e-9


@given(evidence, evidence)
def test_evidence_adds_up_in_any_order(a: Evidence, b: Evidence) -> None:
    assert a.plus(b) == b.plus(a)
    assert sum_evidence(a, b) == a.plus(b)


@given(evidence, st.integers(0, 50), st.integers(0, 50))
def test_decay_composes_and_ignores_earlier_epochs(piece: Evidence, near: int, far: int) -> None:
    once, twice = (
        piece.at(piece.epoch + near + far),
        piece.at(piece.epoch + near).at(piece.epoch + near + far),
    )
    assert once.good == pytest.approx(twice.good)
    assert once.bad == pytest.approx(twice.bad)
    assert (once.audits, once.epoch, once.passed) == (twice.audits, twice.epoch, twice.passed)
    assert piece.at(piece.epoch - 1) == piece


def test_decay_of_a_worked_example() -> None:
    assert Evidence(8.0, 4.0, 30, 10, 20).at(12) == Evidence(
        8.0 * DECAY_PER_EPOCH**2, 4.0 * DECAY_PER_EPOCH**2, 30, 12, 20
    )
    assert pytest.approx(0.5, abs=0.01) == DECAY_PER_EPOCH**34, "as its comment says"


def test_no_account_has_weight_before_enough_groups_passed() -> None:
    reputation = Reputation()
    good(reputation, ALICE, AUDITS_BEFORE_WEIGHT - 1)
    assert reputation.is_newcomer(ALICE)
    assert reputation.weigh([ALICE, BOB], NOW) == AccountStanding({}, (ALICE, BOB))
    good(reputation, ALICE, 1)
    evidence = Evidence(20.0, 0.0, 20, NOW, 20)
    assert reputation.evidence(ALICE, NOW) == evidence
    assert reputation.weigh([BOB, ALICE], NOW) == AccountStanding({ALICE: evidence.weight}, (BOB,))
    assert evidence.weight == pytest.approx(0.790, abs=0.001)


def test_evidence_of_all_families_counts_for_the_account() -> None:
    reputation = Reputation()
    reputation.record_good(ALICE, 0, NOW)
    reputation.record_good(ALICE, 7, NOW - 1)
    reputation.record_fault(ALICE, 3, NOW, Reason.TEXT_POLICY)
    assert reputation.evidence(ALICE, NOW) == Evidence(1 + DECAY_PER_EPOCH, SOFT, 3, NOW, 2)
    assert reputation.evidence(BOB, NOW) == Evidence(epoch=NOW)


@pytest.mark.parametrize("reason", LATER_REASONS)
def test_the_penalty_of_a_fault_is_that_of_the_table(reason: Reason) -> None:
    reputation = Reputation()
    reputation.record_fault(ALICE, 0, NOW, reason)
    assert reputation.evidence(ALICE, NOW) == Evidence(0.0, CONSEQUENCES[reason].evidence, 1, NOW)
    assert reputation.is_banned(ALICE, NOW) == (CONSEQUENCES[reason].evidence >= HARD)
    assert not reputation.is_banned(BOB, NOW)


def test_a_ban_ends_and_is_not_shortened_by_an_older_fault() -> None:
    reputation = Reputation()
    reputation.record_fault(ALICE, 0, NOW, Reason.EQUIVOCATION)
    reputation.record_fault(ALICE, 0, NOW - 1, Reason.EQUIVOCATION)
    banned = [reputation.is_banned(ALICE, epoch) for epoch in (NOW, NOW + BAN_EPOCHS - 1, NOW + BAN_EPOCHS)]
    assert banned == [True, True, False]
    assert reputation.weigh([ALICE], NOW) == AccountStanding({}, ())
    assert reputation.weigh([ALICE], NOW + BAN_EPOCHS) == AccountStanding({}, (ALICE,))


def test_a_trusted_account_loses_its_weight_at_its_first_equivocation() -> None:
    reputation = Reputation()
    good(reputation, ALICE, 200)
    assert reputation.weigh([ALICE], NOW).weights[ALICE] > 0.9
    reputation.record_fault(ALICE, 0, NOW, Reason.EQUIVOCATION)
    assert reputation.weigh([ALICE], NOW) == AccountStanding({}, ())


@given(evidence)
def test_bounding_evidence_keeps_its_ratio(piece: Evidence) -> None:
    kept = piece.bounded()
    assert kept.good + kept.bad <= MAX_EVIDENCE + 1e-6
    assert kept.good * piece.bad == pytest.approx(kept.bad * piece.good)
    assert piece.good + piece.bad > MAX_EVIDENCE or kept == piece


def test_long_good_evidence_does_not_offset_many_later_faults() -> None:
    reputation = Reputation()
    for epoch in range(NOW - 50, NOW):
        for _ in range(20):
            reputation.record_good(ALICE, 0, epoch)
    trusted = reputation.evidence(ALICE, NOW).weight
    for _ in range(int(MAX_EVIDENCE / SOFT)):
        reputation.record_fault(ALICE, 0, NOW, Reason.CHECKER_TIMEOUT)
    assert trusted > 0.9
    assert reputation.evidence(ALICE, NOW).weight < 0.4, "a thousand good groups against 128 bad ones"


def test_reputation_is_restored_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "reputation.sqlite"
    before = Reputation(path)
    good(before, ALICE, 30)
    before.record_fault(BOB, 1, NOW, Reason.EQUIVOCATION)
    after = Reputation(path)
    assert after.weigh([ALICE, BOB, CAROL], NOW) == before.weigh([ALICE, BOB, CAROL], NOW)
    assert after.evidence(ALICE, NOW + 5) == before.evidence(ALICE, NOW + 5)
    assert after.is_banned(BOB, NOW)


def test_evidence_of_the_first_version_counts_as_far_as_good_evidence_is_left(tmp_path: Path) -> None:
    """It counted all audits: an account that only sent uninformative groups is a newcomer again."""
    old = open_database(tmp_path / "old.sqlite", StoreSchema(SCHEMA.component, *SCHEMA.steps[:1]))
    rows = [(ALICE, 0, 12.3, 1.0, 40, NOW), (ALICE, 1, 7.0, 0.0, 30, NOW), (BOB, 0, 0.0, 0.0, 500, NOW)]
    old.executemany("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", rows)
    reputation = Reputation(old)
    evidence = Evidence(19.3, 1.0, 70, NOW, 20)
    assert reputation.evidence(ALICE, NOW) == evidence
    assert reputation.evidence(BOB, NOW) == Evidence(0.0, 0.0, 500, NOW, 0)
    assert reputation.weigh([ALICE, BOB], NOW) == AccountStanding({ALICE: evidence.weight}, (BOB,))


class ReputationMachine(RuleBasedStateMachine):
    """Epochs pass while evidence comes in, some of it late."""

    def __init__(self) -> None:
        super().__init__()
        self.reputation = Reputation()
        self.epoch = 10
        self.banned_until: dict[Account, int] = {}
        self.passed = dict.fromkeys([ALICE, BOB, CAROL], 0)

    accounts = st.sampled_from([ALICE, BOB, CAROL])

    @rule(epochs=st.integers(1, BAN_EPOCHS))
    def time_passes(self, epochs: int) -> None:
        self.epoch += epochs

    @rule(account=accounts, family=st.integers(0, 2), late=st.integers(0, 1), groups=st.integers(1, 15))
    def stands_up(self, account: Account, family: int, late: int, groups: int) -> None:
        before = self.reputation.evidence(account, self.epoch).weight
        for _ in range(groups):
            self.reputation.record_good(account, family, self.epoch - late)
        self.passed[account] += groups
        assert self.reputation.evidence(account, self.epoch).weight >= before - 1e-9

    @rule(
        account=accounts,
        family=st.integers(0, 2),
        late=st.integers(0, 1),
        reason=st.sampled_from(LATER_REASONS),
    )
    def fails(self, account: Account, family: int, late: int, reason: Reason) -> None:
        before = self.reputation.evidence(account, self.epoch)
        self.reputation.record_fault(account, family, self.epoch - late, reason)
        after = self.reputation.evidence(account, self.epoch)
        assert after.weight <= before.weight + 1e-9
        if CONSEQUENCES[reason].evidence >= HARD:
            until = self.epoch - late + BAN_EPOCHS
            self.banned_until[account] = max(until, self.banned_until.get(account, 0))

    @invariant()
    def weights_are_shares_and_bans_are_kept_and_end(self) -> None:
        standing = self.reputation.weigh(self.passed, self.epoch)
        assert all(0.0 <= weight < 1.0 for weight in standing.weights.values())
        for account, passed in self.passed.items():
            banned = self.epoch < self.banned_until.get(account, 0)
            evidence = self.reputation.evidence(account, self.epoch)
            has_failed = evidence.audits >= AUDITS_BEFORE_WEIGHT and evidence.bad >= HARD
            newcomer = passed < AUDITS_BEFORE_WEIGHT
            assert self.reputation.is_newcomer(account) == newcomer
            assert standing.weights.get(account, 0.0) == 0.0 or not newcomer
            newcomer = newcomer and not has_failed
            assert self.reputation.is_banned(account, self.epoch) == banned
            assert (account in standing.weights, account in standing.newcomers) == (
                not banned and not newcomer,
                not banned and newcomer,
            )
            assert not self.reputation.is_banned(account, self.epoch + BAN_EPOCHS)


TestReputationMachine = ReputationMachine.TestCase
TestReputationMachine.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=20)
