"""Newcomers' places in the pool: updated incrementally, with the same result as a full count."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.swarm import EPOCH, Identity, make_chain_manifest, make_manifest

from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, NodeId
from sapo_protocol.rollout import Rollout
from sapo_protocol.terms.gate import BondGate
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, Reputation
from sapo_verification.sampling.newcomers import ENOUGH, LOT_EPOCHS, NewcomerLots
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.standing import Standing
from sapo_verification.types import AdmittedRollout

NODE = NodeId(Identity(1).node)
GATED = make_chain_manifest(version=2, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32))
LIMITS = PoolLimits(rollouts=30, newcomer_share=0.7)
FURTHER = 200


def account_of(number: int) -> Account:
    return Account(number.to_bytes(20, "big"))


def group(account: Account, number: int, epoch: int = EPOCH) -> AdmittedRollout:
    rollout = Rollout(NODE, account, epoch, number, 0, (b"1", b"2"))
    return AdmittedRollout(ContentId(number.to_bytes(32, "big")), rollout)


class AskedReputation(Reputation):
    """Reputation that counts how often it is asked about an account."""

    asked = 0

    def is_newcomer(self, account: Account) -> bool:
        """Return whether it is, and count the question."""
        self.asked += 1
        return super().is_newcomer(account)


class AskedLots(NewcomerLots):
    """Lots that count how often one is asked for."""

    asked = 0

    def lot(self, account: Account, epoch: int) -> float:
        """Return it, and count the question."""
        self.asked += 1
        return super().lot(account, epoch)


def questions(crowd: int) -> float:
    """Return what a further newcomer's message costs, in questions about accounts, when a crowd fills all."""
    reputation = AskedReputation()
    standing = Standing(make_manifest(), account_of(2 * crowd))
    lots = AskedLots(b"key", standing, reputation.passing_part)
    pool = Pool(":memory:", PoolLimits(rollouts=2 * crowd), reputation, lots)
    for number in range(crowd):
        pool.offer(group(account_of(number), number))
    refused = 0
    for number in range(crowd, crowd + FURTHER + 1):
        if number == crowd + 1:  # the first one makes the order, which costs what the crowd has cost so far
            reputation.asked = lots.asked = 0
        try:
            pool.offer(group(account_of(number), number))
        except RemoteProtocolError:
            refused += 1
    assert 0 < refused < FURTHER
    assert len(pool) == crowd
    return (reputation.asked + lots.asked) / FURTHER


def test_a_newcomers_message_costs_the_same_among_few_and_among_thousands() -> None:
    costs = [questions(crowd) for crowd in (64, 256, 1024)]
    assert max(costs) < 16, costs


@dataclass
class CountingPool:
    """The rules of the pool's room as they are written, every place counted again for every message."""

    reputation: Reputation
    lots: NewcomerLots
    epoch: int = 0
    waiting: list[AdmittedRollout] = field(default_factory=list)
    since: dict[Account, int] = field(default_factory=dict)  # when its number of places changed last
    steps: int = 0

    def offer(self, admitted: AdmittedRollout) -> Reason | None:
        self.epoch = max(self.epoch, admitted.rollout.epoch)
        account, room = admitted.account, LIMITS.newcomer_share * LIMITS.rollouts
        places = {a: n for a, n in self.places().items() if self.reputation.is_newcomer(a)}
        if self.reputation.is_newcomer(account) and sum(places.values()) >= room:
            yields = account
            if places.get(account, 0) < ENOUGH:
                yields = min(places, key=lambda a: (-max(ENOUGH, places[a]), -self.lot(a), a))
                if places[yields] <= ENOUGH and self.lot(account) >= self.lot(yields):
                    return Reason.NEWCOMER_CAP
            self.drop_oldest(yields)
        self.waiting.append(admitted)
        self.note(account)
        if len(self.waiting) > LIMITS.rollouts:
            counts = self.places()
            self.drop_oldest(min(counts, key=lambda a: (-counts[a], self.since[a])))
        return None

    def places(self) -> dict[Account, int]:
        accounts = [admitted.account for admitted in self.waiting]
        return {account: accounts.count(account) for account in accounts}

    def lot(self, account: Account) -> float:
        return self.lots.lot(account, self.epoch)

    def note(self, account: Account) -> None:
        self.steps += 1
        self.since[account] = self.steps

    def drop_oldest(self, account: Account) -> None:
        self.remove(next(admitted for admitted in self.waiting if admitted.account == account))

    def remove(self, admitted: AdmittedRollout) -> None:
        self.waiting.remove(admitted)
        self.note(admitted.account)


class PlacesMachine(RuleBasedStateMachine):
    """Messages come, are taken and expire while accounts become known and lots change."""

    accounts = st.sampled_from([account_of(number) for number in range(1, 13)])

    def __init__(self) -> None:
        super().__init__()
        self.reputation, self.standing = Reputation(), Standing(GATED, account_of(99))
        self.lots = NewcomerLots(b"key", self.standing, self.reputation.passing_part)
        self.pool = Pool(":memory:", LIMITS, self.reputation, self.lots)
        self.model = CountingPool(self.reputation, self.lots)
        self.epoch, self.sent = EPOCH, 0

    @rule(account=accounts, count=st.integers(1, 2 * ENOUGH), late=st.integers(0, 1))
    def messages_come(self, account: Account, count: int, late: int) -> None:
        for _ in range(count):
            self.sent += 1
            admitted, refusal = group(account, self.sent, self.epoch - late), None
            try:
                self.pool.offer(admitted)
            except RemoteProtocolError as error:
                refusal = error.reason
            assert refusal is self.model.offer(admitted)

    @rule(numbers=st.permutations(range(1, 13)))
    def everybody_sends_one(self, numbers: list[int]) -> None:
        for number in numbers:
            self.messages_come(account_of(number), 1, 0)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def one_is_taken(self, data: st.DataObject) -> None:
        admitted = data.draw(st.sampled_from(self.model.waiting))
        assert self.pool.take(admitted.content_id)
        self.model.remove(admitted)

    @rule(account=accounts, passed=st.integers(1, AUDITS_BEFORE_WEIGHT))
    def groups_pass(self, account: Account, passed: int) -> None:
        for _ in range(passed):
            self.reputation.record_good(account, 0, self.epoch)

    @rule(account=accounts)
    def a_group_tells_nothing(self, account: Account) -> None:
        self.reputation.record_fault(account, 0, self.epoch, Reason.NO_SIGNAL)

    @rule(bonds=st.dictionaries(accounts, st.integers(1, 100)))
    def bonds_are_read(self, bonds: dict[Account, int]) -> None:
        self.standing.learn(self.epoch, bonds)

    @rule(epochs=st.integers(1, LOT_EPOCHS))
    def time_passes(self, epochs: int) -> None:
        self.epoch += epochs
        self.pool.expire(self.epoch - 1)
        for admitted in list(self.model.waiting):
            if admitted.rollout.epoch < self.epoch - 1:
                self.model.remove(admitted)

    @invariant()
    def the_same_rollouts_wait(self) -> None:
        assert list(self.pool.waiting()) == self.model.waiting
        assert self.pool.accounts() == set(self.model.places())
        for account in self.pool.accounts():
            of_account = [admitted for admitted in self.model.waiting if admitted.account == account]
            assert list(self.pool.waiting(account)) == of_account


TestPlacesMachine = PlacesMachine.TestCase
TestPlacesMachine.settings = settings(stateful_step_count=30)
