"""The conditions that a successful testnet run meets, and the names of those that failed; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from sapo_client.testnet.attack_results import AttackRow
from sapo_client.testnet.ledger_view import Claim, EpochRow
from sapo_client.testnet.node_record import START_STEPS, NodeRecord, trend
from sapo_client.testnet.skills import Skills, skills_of, travelled

ENOUGH_STEPS: Final = 3 * START_STEPS
"""Minimum number of steps for a trend: the first and the last ten steps are then ten steps apart."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """All data that decide whether a run succeeded.

    Attributes:
        epochs: number of epochs that the run had to finish.
        dead: nodes and attackers that exited by themselves and were not running at the end.
        files: files that answers created.
        attackers: number of attackers.
        attacked_seconds: Unix times at which attackers sent something to be refused.
        starts_differ: whether nodes started from different models, so that skills of one should reach the
            others.
    """

    epochs: int
    records: Sequence[NodeRecord]
    attacks: Sequence[AttackRow]
    ledger: Sequence[EpochRow]
    claim: Claim | None
    files: Sequence[str]
    dead: Sequence[str]
    attackers: int
    attacked_seconds: Sequence[float] = ()
    starts_differ: bool = False

    @property
    def skills(self) -> tuple[Skills, ...]:
        """The skills of every node if nodes started from different models; else empty."""
        skills = tuple(map(skills_of, self.records)) if self.starts_differ else ()
        return skills if any(each.lacked for each in skills) else ()


def failures(outcome: RunOutcome) -> list[str]:
    """Return one sentence per condition that does not hold; empty if the run succeeded."""
    return [
        *(f"{name} exited by itself" for name in outcome.dead),
        *(failure for record in outcome.records for failure in training_failures(record)),
        *_learning_failures(outcome),
        *(
            f"{s.name} had an internal fault: {s.service_failures[0]}"
            for s in outcome.records
            if s.service_failures
        ),
        *_ledger_failures(outcome),
        *_attack_failures(outcome),
        *(f"an answer created the file {path}" for path in outcome.files),
    ]


def _learning_failures(outcome: RunOutcome) -> list[str]:
    """Return the reasons why the nodes did not learn; the last one may be that they made few steps."""
    found = reward_failures(outcome.records)
    if outcome.skills:
        found += travel_failures(outcome.skills)
    fewest = min((len(record.steps) for record in outcome.records), default=0)
    if not found or fewest >= ENOUGH_STEPS:
        return found
    return [
        *found,
        f"a node made only {fewest} training steps, and below {ENOUGH_STEPS} learning need not show: run it"
        " while the machine does nothing else, or give it more time (sapo testnet up --epoch-seconds 150)",
    ]


def training_failures(record: NodeRecord) -> list[str]:
    """Return the reasons why one node did not train on others' verified rollouts."""
    name = record.name
    if not record.steps:
        return [f"{name} made no training step"]
    found = []
    if not record.sampled:
        found.append(f"{name} trained on no rollout of others")
    if record.unproven:
        found.append(f"{name} trained on {len(record.unproven)} rollouts that it had not verified")
    if trend(record.rewards) is None:
        found.append(f"{name} made only one training step")
    return found


def reward_failures(records: Sequence[NodeRecord]) -> list[str]:
    """Return the reasons why the nodes did not learn, all their answers taken together.

    The mean must rise, and no node's reward may fall by more than chance explains: the curve of a single node
    is too noisy to require a rise.
    """
    changes = {record.name: change for record in records if (change := trend(record.rewards)) is not None}
    found = [
        f"{name}'s reward fell: {change.start:.3f} to {change.end:.3f}"
        for name, change in changes.items()
        if change.fell
    ]
    if not changes:
        return found  # each node's own failure says so
    start = fmean(change.start for change in changes.values())
    end = fmean(change.end for change in changes.values())
    return (
        found if end > start else [*found, f"the nodes' mean reward did not rise: {start:.3f} to {end:.3f}"]
    )


def travel_failures(skills: Sequence[Skills]) -> list[str]:
    """Return the reason why no skill travelled between nodes that started from different models.

    In the families of which they knew nothing, the nodes' mean reward must rise by more than chance explains.
    """
    change = travelled(skills)
    if change is not None and change.rose:
        return []
    start, end = (0.0, 0.0) if change is None else (change.start, change.end)
    return [
        "no skill travelled: in families of which they knew nothing the nodes' mean reward went from"
        f" {start:.3f} to {end:.3f}, which may be chance"
    ]


def _ledger_failures(outcome: RunOutcome) -> list[str]:
    posted = {row.epoch: row.total for row in outcome.ledger}
    found = [
        f"the ledger lacks epoch {epoch}"
        if epoch not in posted
        else f"epoch {epoch} was posted with no points"
        for epoch in range(1, outcome.epochs)
        if not posted.get(epoch)
    ]
    claim = outcome.claim
    if claim is None:
        found.append("no reward was claimed")
    elif (
        claim.error or claim.points_after <= claim.points_before or claim.tokens_after <= claim.tokens_before
    ):
        found.append(f"{claim.name}'s reward was not paid" + (f": {claim.error}" if claim.error else ""))
    return found


def _attack_failures(outcome: RunOutcome) -> list[str]:
    found = [] if outcome.attacks or not outcome.attackers else ["the attackers sent nothing"]
    for row in outcome.attacks:
        if not row.counted:
            found.append(f"no node refused {row.kind} for {' or '.join(row.expected)}")
        if not row.harmless:
            found.append(f"a node trained on {row.kind}")
    return found
