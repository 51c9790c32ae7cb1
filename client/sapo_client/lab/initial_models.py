"""Groups of agents and families by initial model, by whether an agent's initial model knows the families."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Final

from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import ExperimentPlan
from sapo_client.lab.store import Curve, write_csv

OWN: Final = "own families"
OTHERS: Final = "the other half's"
NOBODYS: Final = "nobody's"
KINDS: Final = (OWN, OTHERS, NOBODYS)


@dataclass(frozen=True, slots=True)
class StartGroup:
    """Some agents with some of the families each.

    Attributes:
        families: families of each agent that belongs to the group.
    """

    name: str
    families: Mapping[int, tuple[str, ...]]

    def curve(self, rows: Sequence[CurvePoint]) -> list[tuple[int, float]]:
        """Return held-out pass@1 after every evaluated round, averaged over families and then over agents."""
        return [
            (number, statistics.fmean(map(self._of_agent, members)))
            for number, group in groupby(rows, key=lambda row: row.round)
            if (members := [row for row in group if row.held_out and row.agent in self.families])
        ]

    def _of_agent(self, row: CurvePoint) -> float:
        by_family = row.held_out or {}
        return statistics.fmean(by_family[name] for name in self.families[row.agent])


def kind_of(plan: ExperimentPlan, agent: int, family: str) -> str | None:
    """Return whether an agent's start, another one or none knows a family; None if the plan names none."""
    if not plan.knows:
        return None
    if family in plan.knows[agent % len(plan.starts)]:
        return OWN
    return OTHERS if any(family in names for names in plan.knows) else NOBODYS


def groups_of(plan: ExperimentPlan) -> list[StartGroup]:
    """Return the groups of a plan, by initial model and, if the plan names known families, by kind of family.

    Empty if all agents start alike.
    """
    if len(plan.starts) == 1:
        return []
    by_start = [
        (model, [agent for agent in range(plan.agents) if plan.start_of(agent) == model])
        for model in plan.starts
    ]
    everybody = list(range(plan.agents))
    if not plan.knows:
        return [
            StartGroup(f"from {model}", dict.fromkeys(agents, plan.families)) for model, agents in by_start
        ]
    named = [("all agents", everybody), *((f"from {model}", agents) for model, agents in by_start)]
    return [
        StartGroup(f"{name}, {kind}", families)
        for name, agents in named
        for kind in KINDS
        if (families := _of_kind(plan, agents, kind))
    ]


def _of_kind(plan: ExperimentPlan, agents: Sequence[int], kind: str) -> dict[int, tuple[str, ...]]:
    """Return the families of a kind by agent, without the agents that have no such family."""
    families = {
        agent: tuple(name for name in plan.families if kind_of(plan, agent, name) == kind) for agent in agents
    }
    return {agent: names for agent, names in families.items() if names}


AGENT_COLUMNS: Final = (
    *("arm", "seed", "agent", "start", "family", "kind", "round"),
    *("tokens", "trained_tokens", "seconds", "received_bytes", "held_out", "greedy"),
)


def write_agents(path: Path, curves: Sequence[Curve]) -> None:
    """Write the held-out curve of every agent and family, with the agent's cost so far."""
    write_csv(path, AGENT_COLUMNS, chain.from_iterable(map(_agent_rows, curves)))


def _agent_rows(curve: Curve) -> Iterator[tuple[object, ...]]:
    plan = curve.run.plan
    spent: dict[int, tuple[float, ...]] = {}
    for row in curve.rows:
        costs = (row.generated_tokens, row.trained_tokens, row.seconds, row.received_bytes)
        before = spent.get(row.agent, (0,) * len(costs))
        spent[row.agent] = tuple(a + b for a, b in zip(before, costs, strict=True))
        if row.held_out is None or row.greedy is None:
            continue
        for family, share in row.held_out.items():
            start, kind = plan.start_of(row.agent), kind_of(plan, row.agent, family)
            about = (curve.run.arm.name, curve.run.seed, row.agent, start, family, kind, row.round)
            yield *about, *spent[row.agent], share, row.greedy[family]
