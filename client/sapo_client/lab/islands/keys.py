"""Keys of accounts whose homes are those that an experiment needs, by the protocol's own rule.

A home is drawn again in every period, and a key that exists before a beacon cannot choose it. In a swarm
without a chain all beacons are derived from the manifest, so keys are tried until one has the required home
in every period of the run. A node's visits are derived from its node key, which is not chosen. So homes are
constant and visits change, and text reaches another island only through visits; in a real swarm accounts that
move also take their skills with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import ceil

from sapo_client.lab.learner import INTRODUCTION_SECONDS, ROUND_SECONDS
from sapo_client.lab.plan import AgentKeys, ExperimentPlan, Run
from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.islands.homes import drawing_epoch, home_island
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.islands import IslandTerms


def islands_of(plan: ExperimentPlan) -> IslandTerms | None:
    """Return the island terms of a plan; None for a swarm without islands."""
    if not plan.islands:
        return None
    return IslandTerms(
        most_accounts=2,
        least_accounts=1,
        period_epochs=plan.period_epochs,
        most_islands=plan.islands,
        count=plan.islands,
    )


def authors_of(run: Run, manifest: Manifest) -> tuple[AgentKeys, ...]:
    """Return the keys of all agents, then of the teachers; their homes are the same in every epoch."""
    if run.plan.islands <= 1:
        return run.authors()
    beacons = [beacon(manifest.swarm_id, epoch, b"") for epoch in range(last_epoch(run.plan) + 1)]
    numbers = range(run.plan.agents + run.teachers)
    return tuple(_settled(run, manifest, beacons, number) for number in numbers)


def last_epoch(plan: ExperimentPlan) -> int:
    """Return the epoch in which the last round of an agent that rehearses nothing ends.

    A round with rehearsed answers takes one virtual second more, so the last rounds of an agent that learns
    are later, in one or two epochs whose homes were not checked.
    """
    return ceil((INTRODUCTION_SECONDS / ROUND_SECONDS + plan.rounds) / plan.rounds_per_epoch)


def _settled(run: Run, manifest: Manifest, beacons: list[Digest], number: int) -> AgentKeys:
    wanted = run.plan.home_of(number)
    for tried in count():
        keys = AgentKeys(f"{run.seed}/{number}/{tried}")
        if all(home == wanted for home in _homes(run.plan, manifest, beacons, keys.account)):
            return keys
    raise AssertionError("the numbers have no end")


def _homes(
    plan: ExperimentPlan, manifest: Manifest, beacons: list[Digest], account: Account
) -> Iterator[int]:
    """Yield the different homes of an account."""
    drawn = (
        drawing_epoch(manifest.swarm_id, account, epoch, plan.period_epochs) for epoch in range(len(beacons))
    )
    for epoch in dict.fromkeys(drawn):
        yield home_island(manifest.swarm_id, beacons[epoch], account, plan.islands)
