"""Honest newcomers in a flood of cheap accounts: all become known, some later than without the flood."""

from collections.abc import Iterable, Iterator

import pytest
from support.simulation import (
    AUDIT_SHARE,
    GOOD,
    WRONG,
    Author,
    Behaviour,
    Draws,
    Simulation,
    silent_until,
    steady,
)
from support.swarm import EPOCH, Identity

from sapo_protocol.rollout import Rollout
from sapo_verification.sampling.pool import PoolLimits

TRUSTED = [Author(number, steady(8)) for number in range(20)]
WARM_UP = 12
BEGIN = EPOCH + WARM_UP
"""Then all newcomers come at once."""

WITHIN = 12
"""Epochs in which honest newcomers become known."""

FLOOD = 250
LIMITS = PoolLimits(rollouts=1024)
"""A quarter of a thousand accounts, and of the usual places."""


class LotSimulation(Simulation):
    """Audits all of newcomers' rollouts that the pool takes, as an engine does, and a quarter of others'."""

    async def _round(self, rollouts: Iterable[tuple[Identity, Rollout]], draws: Draws) -> None:
        for key, rollout in rollouts:
            admitted = self._receive(key, rollout)
            if admitted is None:
                continue
            if self.reputation.is_newcomer(admitted.account) or self._rng.random() < AUDIT_SHARE:
                await self._audit(admitted)
        await self._draw(draws)


def newcomers(first: int, count: int, behaviour: Behaviour) -> list[Author]:
    return [Author(first + number, silent_until(BEGIN, behaviour)) for number in range(count)]


def come_and_go(first: int, count: int) -> Iterator[Author]:
    """Yield accounts of which so many live at a time, each for one epoch."""
    for epoch in range(BEGIN, BEGIN + WITHIN):
        for number in range(count):
            yield Author(
                first + (epoch - BEGIN) * count + number,
                lambda now, born=epoch: (GOOD,) * 8 if now == born else (),  # type: ignore[misc]
            )


async def known_after(simulation: Simulation, of: list[Author], epochs: int) -> int:
    await simulation.run(epochs)
    return sum(not simulation.reputation.is_newcomer(author.account) for author in of)


@pytest.mark.parametrize("flood", [0, FLOOD // 5, FLOOD])
async def test_honest_newcomers_become_known_under_floods_of_any_size(flood: int) -> None:
    """Each of the flood sends as much as an honest account, and answers as well."""
    honest = newcomers(500, 5, steady(8))
    simulation = LotSimulation([*TRUSTED, *honest, *newcomers(1000, flood, steady(8))], limits=LIMITS)
    await simulation.run(WARM_UP)
    assert await known_after(simulation, honest, WITHIN) == 5


async def test_a_flood_of_uninformative_groups_never_becomes_known() -> None:
    """None of it passes, so it never leaves the newcomers; the more is audited, the worse are its lots."""
    honest, flood = newcomers(500, 5, steady(8)), newcomers(1000, FLOOD, steady(8, (WRONG, WRONG)))
    simulation = LotSimulation([*TRUSTED, *honest, *flood], limits=LIMITS)
    await simulation.run(WARM_UP)
    assert await known_after(simulation, honest, WITHIN) == 5
    assert await known_after(simulation, flood, 0) == 0


async def test_newcomers_that_send_ten_times_as_much_exclude_no_others() -> None:
    honest = newcomers(500, 5, steady(8))
    simulation = LotSimulation([*TRUSTED, *honest, *newcomers(1000, FLOOD // 10, steady(80))], limits=LIMITS)
    await simulation.run(WARM_UP)
    assert await known_after(simulation, honest, WITHIN) == 5


async def test_changing_accounts_delay_most_newcomers_and_not_all() -> None:
    """None of them is ever known, so none of them leaves its place for good: there is no defence but cost."""
    honest = newcomers(500, 20, steady(8))
    simulation = LotSimulation([*TRUSTED, *honest, *come_and_go(10_000, FLOOD)], limits=LIMITS)
    await simulation.run(WARM_UP)
    assert await known_after(simulation, honest, WITHIN) >= 5


async def test_accounts_with_a_hundredth_of_a_bond_have_a_hundredth_of_the_effect() -> None:
    honest, flood = newcomers(500, 20, steady(8)), list(come_and_go(10_000, FLOOD))
    bonds = {author.account: 100 for author in (*TRUSTED, *honest)} | {each.account: 1 for each in flood}
    simulation = LotSimulation([*TRUSTED, *honest, *flood], bonds=bonds, limits=LIMITS)
    await simulation.run(WARM_UP)
    assert await known_after(simulation, honest, WITHIN) == 20
