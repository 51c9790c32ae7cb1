"""Keys whose accounts live where an experiment wants them, by the protocol's own rule.

A home is drawn anew in every period, and a key that exists before a beacon cannot choose it. In a swarm
without a chain all beacons follow from the manifest, so keys are tried until one has the wanted home in every
period of the run. What a node visits follows from its node key, which is not chosen. So homes stay and visits
change, and what travels between islands travels by visits: accounts that move carry what they know besides.
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
    """Return the terms of a plan's islands; None in an undivided swarm."""
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
    """Return the keys of all agents, then of the teachers, each with its home in every epoch of the run."""
    if run.plan.islands <= 1:
        return run.authors()
    beacons = [beacon(manifest.swarm_id, epoch, b"") for epoch in range(last_epoch(run.plan) + 1)]
    numbers = range(run.plan.agents + run.teachers)
    return tuple(_settled(run, manifest, beacons, number) for number in numbers)


def last_epoch(plan: ExperimentPlan) -> int:
    """Return the epoch in which the last round ends of an agent that rehearses nothing.

    A round with rehearsed answers takes a virtual second more, so the last rounds of who learns are later, in
    one or two epochs whose homes were not looked at.
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
    """Yield the homes of an account, each once."""
    drawn = (
        drawing_epoch(manifest.swarm_id, account, epoch, plan.period_epochs) for epoch in range(len(beacons))
    )
    for epoch in dict.fromkeys(drawn):
        yield home_island(manifest.swarm_id, beacons[epoch], account, plan.islands)
