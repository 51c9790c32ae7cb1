"""Influence of attackers on a node's batches: bounded by account, for any content and timing.

Every test simulates a whole history of one node with twenty honest accounts; see `support.simulation`.
"""

import math

import pytest
from support.simulation import (
    BAD,
    GOOD,
    SEALED_PER_EPOCH,
    Author,
    Behaviour,
    Simulation,
    broken_check,
    silent_until,
    steady,
    turning,
)
from support.swarm import EPOCH

from sapo_protocol.errors import Reason
from sapo_verification.sampling.sampler import SamplingPolicy, capped_shares

HONEST = [Author(number, steady(8)) for number in range(20)]
WARM_UP = 12
"""Epochs until all accounts that send eight groups an epoch were audited often enough to carry weight."""

POLICY = SamplingPolicy(local_groups=8, external_groups=8)
"""Twice the usual batch: more draws in the same time."""


def attackers(count: int, behaviour: Behaviour, keys: int = 1, host: str = "127.0.0.1") -> list[Author]:
    return [Author(1000 + number, behaviour, keys, host) for number in range(count)]


def deviation(share: float, draws: int) -> float:
    """Return three standard deviations of an observed share."""
    return 3 * math.sqrt(share * (1 - share) / draws)


async def test_the_same_seed_makes_the_same_history() -> None:
    first, second, other = [await Simulation(HONEST, seed=seed, policy=POLICY).run(4) for seed in (4, 4, 5)]
    assert first == second != other


async def test_a_thousand_keys_on_a_tenth_of_the_accounts_get_the_accounts_share() -> None:
    evil = attackers(2, lambda epoch: (GOOD,) * (8 if epoch < EPOCH + WARM_UP else SEALED_PER_EPOCH), 500)
    crowd = [*HONEST[:18], *evil]
    assert sum(author.keys for author in evil) == 1000
    assert len(evil) / len(crowd) == 0.1
    simulation = Simulation(crowd, policy=POLICY, sealed=True)
    await simulation.run(WARM_UP)
    draws = await simulation.run(10)
    assert simulation.refused[Reason.CERTIFICATE_UNKNOWN] > 900, "four keys per account count"
    assert draws.share(evil) <= 0.1 + 0.02


async def test_a_tenfold_flood_gains_nothing() -> None:
    flooder = attackers(1, steady(80))
    simulation = Simulation([*HONEST, *flooder], policy=POLICY)
    await simulation.run(WARM_UP)
    standing = simulation.reputation.weigh([a.account for a in (*HONEST, *flooder)], simulation.epoch)
    shares = capped_shares(standing, POLICY)
    honest = [shares[author.account] for author in HONEST]
    assert shares[flooder[0].account] <= max(honest) + 1e-12
    draws = await simulation.run(25)
    fair = 1 / 21
    assert draws.share(flooder) <= fair + deviation(fair, draws.groups.total())


async def test_newcomers_get_a_tenth_together_and_each_at_most_the_share_of_a_known_account() -> None:
    crowd = attackers(100, silent_until(EPOCH + WARM_UP, steady(2)))
    simulation = Simulation([*HONEST, *crowd], policy=POLICY)
    await simulation.run(WARM_UP)
    standing = simulation.reputation.weigh([a.account for a in (*HONEST, *crowd)], simulation.epoch)
    assert (len(standing.weights), len(standing.newcomers)) == (20, 100)
    shares = capped_shares(standing, POLICY)
    assert sum(shares[author.account] for author in crowd) <= 0.1 + 1e-12
    draws = await simulation.run(12)
    assert draws.part_of_places(crowd) <= 0.1 + deviation(0.1, draws.places)


async def test_an_account_that_turns_bad_is_never_trained_and_loses_its_places() -> None:
    """Bad groups of a once honest account are verified before use, so they only waste places."""
    evil = attackers(4, turning(8, EPOCH + 30))
    simulation = Simulation([*HONEST, *evil], policy=POLICY)
    before = await simulation.run(30)
    fair = 4 / 24
    assert before.share(evil) == pytest.approx(fair, abs=deviation(fair, before.groups.total()))
    weights = {a: simulation.reputation.evidence(a.account, simulation.epoch).weight for a in evil}
    await simulation.run(1)  # the good groups of the epoch before are still good
    after = await simulation.run(15)
    assert after.share(evil) == 0.0
    wasted = 1 - after.groups.total() / after.places
    assert wasted <= fair
    for author in evil:
        assert simulation.reputation.evidence(author.account, simulation.epoch).weight < weights[author] / 2


async def test_an_account_with_poison_that_passes_every_check_stays_within_its_cap() -> None:
    """Against poison of a once honest account that no checker detects there is only the cap of an account."""
    old, few = attackers(1, steady(8)), HONEST[:4]
    simulation = Simulation([*few, *old], policy=POLICY)
    await simulation.run(WARM_UP)
    draws = await simulation.run(25)
    assert draws.part_of_places(old) <= POLICY.account_cap + deviation(POLICY.account_cap, draws.places)
    filled = draws.groups.total() / draws.places
    assert filled == pytest.approx(5 * 0.125, abs=0.1), "what the cap cuts goes to nobody"


async def test_changing_accounts_gains_no_share() -> None:
    """Whitewashing: a fresh account every two epochs, whose sixteen groups cannot be audited twenty times."""
    lives, last = 15, 2
    begin = EPOCH + WARM_UP

    def life(number: int) -> Behaviour:
        born = begin + last * number
        return lambda epoch: (GOOD,) * 8 if born <= epoch < born + last else ()

    evil = [Author(2000 + number, life(number)) for number in range(lives)]
    simulation = Simulation([*HONEST, *evil], policy=POLICY)
    await simulation.run(WARM_UP)
    draws = await simulation.run(lives * last)
    honest = 1 / 21
    assert draws.share(evil) <= honest + deviation(honest, draws.groups.total())
    standing = simulation.reputation.weigh([author.account for author in evil], simulation.epoch)
    assert standing.weights == {}, "none of them ever carried weight"


async def test_a_broken_checker_costs_no_reputation() -> None:
    simulation = Simulation(HONEST, policy=POLICY)
    await simulation.run(WARM_UP)
    simulation.check = broken_check
    await simulation.run(1)  # what was audited before the upgrade is still known to be good
    assert (await simulation.run(3)).groups.total() == 0, "nothing is believed meanwhile"
    assert simulation.reputation.suspended(simulation.epoch - 1) == (Reason.CHECKER_CRASH,)
    after = [simulation.reputation.evidence(author.account, simulation.epoch).bad for author in HONEST]
    assert after == pytest.approx([0.0] * len(HONEST))
    assert simulation.refused[Reason.CHECKER_CRASH] > 100


async def test_a_minority_that_fails_together_is_penalised() -> None:
    evil = attackers(9, turning(8, EPOCH + WARM_UP, BAD))
    simulation = Simulation([*HONEST[:10], *evil], policy=POLICY)
    await simulation.run(WARM_UP + 3)
    assert simulation.reputation.suspended(simulation.epoch - 1) == ()
    faults = [simulation.reputation.evidence(author.account, simulation.epoch).bad for author in evil]
    assert min(faults) > 1.0


async def test_one_network_gets_a_quarter_however_many_accounts_it_rents() -> None:
    evil, few = attackers(12, steady(8), host="9.9.9.7"), HONEST[:6]
    simulation = Simulation([*few, *evil], policy=POLICY)
    await simulation.run(WARM_UP)
    draws = await simulation.run(20)
    assert draws.part_of_places(evil) <= 0.25 + deviation(0.25, draws.places)
    harness = Simulation([*few, *attackers(12, steady(8))], policy=POLICY)
    await harness.run(WARM_UP)
    free = await harness.run(20)
    assert free.share(evil) > 0.5, (
        "the same accounts from a private address, as on one machine, are not capped"
    )
