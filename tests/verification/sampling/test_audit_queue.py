"""The audit queue: time is divided among accounts, whatever they send and however long it takes."""

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity, make_admission, make_manifest, moment

from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_verification.sampling.audit_queue import MAX_CHARGED, AuditQueue, Turn
from sapo_verification.types import AdmittedRollout

ALICE, BOB, CAROL, MALLORY = (Identity(number) for number in range(1, 5))
EVERYBODY = (ALICE, BOB, CAROL, MALLORY)
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=16))
SLOTS = 400


def groups(author: Identity, count: int) -> list[AdmittedRollout]:
    """Return admitted rollouts of an author."""
    admission = make_admission(MANIFEST, author)
    return [admission.admit(author.message(MANIFEST, slot=slot), moment(MANIFEST)) for slot in range(count)]


HEARD = {author.account: groups(author, SLOTS) for author in EVERYBODY}


def served(queue: AuditQueue, seconds: float, cost: dict[Account, float]) -> dict[Account, float]:
    """Return the time that each account gets of so many seconds of auditing."""
    used: defaultdict[Account, float] = defaultdict(float)
    while len(queue) and sum(used.values()) < seconds:
        turn = queue.take()
        queue.charge(turn, cost[turn.admitted.account])
        used[turn.admitted.account] += cost[turn.admitted.account]
    return used


def queue_of(*authors: Identity, known: tuple[Identity, ...] = ()) -> AuditQueue:
    """Return a queue with many rollouts of every account, one account's before the next one's."""
    queue = AuditQueue()
    for author in authors:
        for admitted in HEARD[author.account]:
            assert queue.put(admitted, known=author in known) is None
    return queue


def test_one_accounts_rollouts_are_audited_in_the_order_in_which_they_came() -> None:
    queue, mine = AuditQueue(), HEARD[ALICE.account][:5]
    for admitted in mine:
        queue.put(admitted, known=False)
    turns = []
    while len(queue):
        turns.append(queue.take())
        queue.charge(turns[-1], 1.0)
    assert turns == [Turn(admitted, known=False) for admitted in mine]


def test_sending_first_or_most_gains_no_checker_time() -> None:
    used = served(queue_of(MALLORY, ALICE, BOB), 30.0, dict.fromkeys(HEARD, 0.1))
    assert {account: round(seconds) for account, seconds in used.items()} == {
        MALLORY.account: 10,
        ALICE.account: 10,
        BOB.account: 10,
    }


def test_accounts_whose_answers_time_out_wait_until_others_had_as_much_time() -> None:
    cost = dict.fromkeys(HEARD, 0.01) | {MALLORY.account: 2.0}
    queue = queue_of(MALLORY, ALICE, BOB)
    assert served(queue, 2.0, cost) == {MALLORY.account: 2.0}  # the cost is not known before the first one
    next_turns = Counter[Account]()
    for _ in range(2 * 150):
        turn = queue.take()
        queue.charge(turn, cost[turn.admitted.account])
        next_turns[turn.admitted.account] += 1
    assert next_turns == {ALICE.account: 150, BOB.account: 150}


def test_newcomers_get_a_tenth_of_the_time_while_known_accounts_wait_and_then_all() -> None:
    cost = dict.fromkeys(HEARD, 0.1) | {MALLORY.account: 0.5}
    queue = queue_of(MALLORY, CAROL, ALICE, known=(ALICE,))
    busy = served(queue, 40.0, cost)
    strangers = busy[MALLORY.account] + busy[CAROL.account]
    assert 3.5 <= strangers <= 4.5
    served(queue, 5.0, cost)  # the last of hers
    assert set(served(queue, 20.0, cost)) == {MALLORY.account, CAROL.account}


def test_idle_accounts_accumulate_no_checker_time() -> None:
    queue = queue_of(ALICE)
    served(queue, 20.0, dict.fromkeys(HEARD, 0.1))
    for admitted in HEARD[MALLORY.account]:
        queue.put(admitted, known=False)
    used = served(queue, 10.0, dict.fromkeys(HEARD, 0.1))
    assert abs(used[MALLORY.account] - used[ALICE.account]) <= 0.2


def test_a_flood_evicts_its_own_author_and_newcomers_before_known_accounts() -> None:
    queue = AuditQueue(max_waiting=6)
    flood, carols, alices = (HEARD[author.account] for author in (MALLORY, CAROL, ALICE))
    assert [queue.put(admitted, known=False) for admitted in flood[:6]] == [None] * 6
    assert queue.put(carols[0], known=False) is flood[5]
    assert queue.put(flood[6], known=False) is flood[6]
    assert [queue.put(admitted, known=True) for admitted in alices[:6]] == [
        *reversed(flood[1:5]),
        carols[0],  # one of each is left, and hers has been alone for longer
        flood[0],
    ]
    assert queue.put(alices[6], known=True) is alices[6]
    assert len(queue) == 6


@given(
    st.lists(
        st.tuples(st.sampled_from(EVERYBODY), st.booleans(), st.floats(0.0, 5.0)), min_size=1, max_size=60
    ),
    st.integers(1, 20),
)
def test_every_queued_rollout_leaves_the_queue_once(
    steps: list[tuple[Identity, bool, float]], most: int
) -> None:
    queue = AuditQueue(max_waiting=most)
    heard = {account: iter(rollouts) for account, rollouts in HEARD.items()}
    put, out = [], []
    for author, known, seconds in steps:
        put.append(next(heard[author.account]))
        displaced = queue.put(put[-1], known=known)
        out += [] if displaced is None else [displaced]
        assert len(queue) <= most
        if seconds > 2.5:
            turn = queue.take()
            queue.charge(turn, seconds)
            out.append(turn.admitted)
    while len(queue):
        out.append(queue.take().admitted)
    assert sorted(admitted.content_id for admitted in out) == sorted(each.content_id for each in put)


def test_an_epochs_rollouts_are_unaudited_until_they_are_charged_or_displaced() -> None:
    queue = AuditQueue(max_waiting=2)
    first, second, third = HEARD[ALICE.account][:3]
    assert [queue.put(each, known=True) for each in (first, second, third)] == [None, None, third]
    assert (queue.unaudited(EPOCH), queue.unaudited(EPOCH + 1)) == (2, 0)
    turn = queue.take()
    assert (turn.admitted, queue.unaudited(EPOCH)) == (first, 2)
    queue.charge(turn, 1.0)
    assert queue.unaudited(EPOCH) == 1


@pytest.mark.parametrize(("strangers", "is_forgiven"), [(MAX_CHARGED - 3, False), (MAX_CHARGED, True)])
def test_times_are_forgotten_when_too_many_accounts_have_one(strangers: int, is_forgiven: bool) -> None:
    queue = AuditQueue()
    expensive, cheap = HEARD[ALICE.account], HEARD[BOB.account]
    for admitted, seconds in ((expensive[0], 100.0), (cheap[0], 1.0)):
        queue.put(admitted, known=False)
        queue.charge(queue.take(), seconds)
    template = HEARD[MALLORY.account][0]
    for number in range(strangers):
        rollout = replace(template.rollout, account=Account(number.to_bytes(20, "big")))
        queue.put(replace(template, rollout=rollout), known=False)
        queue.charge(queue.take(), 0.0)
    for admitted in (expensive[1], cheap[1]):
        queue.put(admitted, known=False)
    assert queue.take().admitted is (expensive[1] if is_forgiven else cheap[1])
