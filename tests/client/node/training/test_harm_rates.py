"""After harm it is found out whose text does it; a few accounts do not keep out the text of all."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from support.canary_pulses import Node, Plan

from sapo_client.node.training.harm_rates import (
    MAX_ACCOUNTS,
    MAX_COMPARISONS,
    MAX_EXPECTED_HARM,
    HarmRates,
    PastComparison,
)
from sapo_protocol.identifiers import Account


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


ALL = tuple(map(account, range(1, 11)))
ONE, TWO, NEW = account(1), account(2), account(99)


def rng(seed: int = 0) -> random.Random:
    return random.Random(seed)


def after(*comparisons: tuple[Iterable[Account], bool], seed: int = 0) -> HarmRates:
    """Return the state after comparisons with these accounts, of which some ended with harm."""
    found = HarmRates()
    for number, (accounts, has_harmed) in enumerate(comparisons):
        found = (
            HarmRates(comparisons=found.comparisons)
            .using(accounts)
            .ended(rng(seed + number), has_harmed=has_harmed)
        )
    return found


def test_without_harm_everybody_is_admitted() -> None:
    found = after((ALL, False), (ALL[:5], False))
    comparisons = (PastComparison(ALL, has_harmed=False), PastComparison(ALL[:5], has_harmed=False))
    assert found == HarmRates(used=ALL[:5], comparisons=comparisons)
    admits = found.admission()
    assert all(map(admits, (*ALL, NEW)))


def test_after_harm_as_many_are_admitted_as_do_harm_once_in_four_comparisons() -> None:
    waiting = set()
    for seed in range(20):
        found = after((ALL, True), seed=seed)
        rates = found.rates()
        assert set(rates.values()) == {rates[ONE]}, "nothing tells them apart"
        admitted = set(ALL) - found.waiting
        assert len(admitted) == 2
        assert sum(rates[each] for each in admitted) <= MAX_EXPECTED_HARM
        assert found.used == tuple(sorted(admitted)), "of the others the learner forgets the texts"
        waiting.add(found.waiting)
    assert len(waiting) > 10, "nobody outside can predict who"


def test_the_accounts_of_every_harmful_comparison_are_found() -> None:
    """Each of two does harm alone, in turns; the others were trained beside them as often as without."""
    honest = ALL[2:]
    comparisons = [
        ((ONE, *honest[:4]), True),
        (honest[4:], False),
        ((TWO, *honest[4:]), True),
        (honest[:4], False),
        ((ONE, *honest[2:6]), True),
        (honest[::2], False),
        ((TWO, *honest[1::2]), True),
        (honest[1::2], False),
    ]
    found = after(*comparisons)
    rates = found.rates()
    assert min(rates[ONE], rates[TWO]) > 0.6
    assert max(rates[each] for each in honest) < 0.05
    assert found.waiting == {ONE, TWO}


def test_a_new_account_takes_more_of_the_blame_than_one_that_has_taught() -> None:
    comparisons = [*[(ALL[:4], False)] * 6, ((*ALL[:4], NEW), True)]
    rates = after(*comparisons).rates()
    assert rates[NEW] > 3 * rates[ONE]


def test_the_order_of_the_accounts_does_not_matter() -> None:
    one = after((ALL, True), (ALL[:3], False))
    assert replace(after((ALL[::-1], True), (ALL[2::-1], False)), used=one.used) == one


def test_new_accounts_are_admitted_by_lot_while_new_ones_do_harm() -> None:
    new = [account(number) for number in range(1000, 2000)]
    found = HarmRates().using(ALL).ended(rng(), has_harmed=False)
    chances, admitted = [], []
    for number in range(6):
        fresh = (account(100 + 2 * number), account(101 + 2 * number))
        found = HarmRates(comparisons=found.comparisons).using((*ALL[number % 2 :: 2], *fresh))
        found = found.ended(rng(number), has_harmed=True)
        chances.append(found.new_chance)
        admitted.append(sum(map(found.admission(), new)) / len(new))
        found = HarmRates(comparisons=found.comparisons).using(ALL[(number + 1) % 2 :: 2])
        found = found.ended(rng(number), has_harmed=False)
    assert 0.8 > chances[0] > 1.8 * chances[-1] > 0.0
    assert len({*ALL} & found.waiting) <= 1, "those beside whom they did it teach on"
    assert admitted == pytest.approx(chances, abs=0.05)
    for number in range(MAX_COMPARISONS):
        found = HarmRates(comparisons=found.comparisons).using(ALL[:4]).ended(rng(number), has_harmed=False)
    assert found.new_chance == 1.0, "it is forgotten"


def test_lots_of_new_accounts_change_with_each_comparison() -> None:
    one, other = (after((ALL, True), (ALL[:1], True), seed=seed) for seed in (0, 1))
    new = [account(number) for number in range(1000, 1100)]
    assert list(map(one.admission(), new)) != list(map(other.admission(), new))


@pytest.mark.parametrize(("harm", "checks"), [(1, 13), (3, 23), (10, 34)])
def test_the_only_account_that_teaches_comes_back(harm: int, checks: int) -> None:
    """By checks without any text, later after more harm."""
    found = after(*[((ONE,), True)] * harm)
    waited = 0
    while ONE in found.waiting:
        found, waited = found.idle(rng()), waited + 1
    assert waited == checks


def test_who_has_left_is_in_every_comparison_until_it_waits() -> None:
    """The learner trains on its text, whether it shows more or not."""
    taught = HarmRates().using((ONE, TWO)).ended(rng(), has_harmed=False)
    found = taught.using((NEW,)).ended(rng(), has_harmed=True)
    assert found.comparisons[-1] == PastComparison((ONE, TWO, NEW), has_harmed=True)
    assert set(found.used) == {ONE, TWO, NEW} - found.waiting
    assert NEW in found.waiting


def test_a_bounded_number_of_accounts_and_comparisons_is_remembered() -> None:
    many = [account(number) for number in range(1, MAX_ACCOUNTS + 10)]
    found = HarmRates().using(many)
    assert found.used == tuple(many[9:])
    found = found.ended(rng(), has_harmed=True).using(many[:9]).ended(rng(), has_harmed=False)
    known = set().union(*(comparison.accounts for comparison in found.comparisons))
    assert len(known) == MAX_ACCOUNTS
    assert known >= set(many[:9])
    for _ in range(MAX_COMPARISONS + 1):
        found = found.idle(rng())
    assert found.comparisons == (PastComparison((), has_harmed=False),) * MAX_COMPARISONS
    assert (found.waiting, found.new_chance) == (frozenset(), 1.0)


@pytest.mark.parametrize(
    "plan",
    [
        Plan("one family", attackers=1),
        Plan("one family", attackers=2),
        Plan("one family", honest=7, attackers=3),
        Plan("another one each time", honest=7, attackers=3),
        Plan("each from forty checks later on", honest=7, attackers=3),
    ],
)
async def test_some_accounts_do_not_keep_out_what_the_others_teach(tmp_path: Path, plan: Plan) -> None:
    """Each harms alone, whenever it wants and its text is used; without others a node comes to 0.46."""
    found = await Node(plan, tmp_path).run()
    assert found.levels[-1] > 0.75
    assert fmean(found.lowest) > 0.5


async def test_new_accounts_each_time_do_not_close_the_node(tmp_path: Path) -> None:
    """Alone it comes to 0.46, and to a mean of 0.39 over all checks."""
    found = await Node(Plan("one family", attackers=2, fresh=True), tmp_path).run()
    assert found.levels[-1] > 0.6
    assert fmean(found.lowest) > 0.4


async def test_text_of_accounts_that_have_left_does_not_do_harm_for_ever(tmp_path: Path) -> None:
    """An account that only teaches took the blame each time, and honest ones that had taught meanwhile."""
    plan = Plan("one family", leaves=True, scapegoats=1)
    found = await Node(plan, tmp_path).run()
    assert found.returned <= 4
    assert found.attacked < 30
    assert found.levels[-1] > 0.7
