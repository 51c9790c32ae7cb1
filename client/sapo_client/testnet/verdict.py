"""Whether the testnet did what it is for: every condition, and the ones that failed by name; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapo_client.testnet.battle import AttackRow
from sapo_client.testnet.ledger_view import Claim, EpochRow
from sapo_client.testnet.story import Story, trend


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Everything that a run is judged by.

    Attributes:
        epochs: epochs that were to be finished.
        dead: nodes and attackers that ended by themselves and were not running at the end.
        files: files that answers created.
        attackers: how many there were.
    """

    epochs: int
    stories: Sequence[Story]
    attacks: Sequence[AttackRow]
    ledger: Sequence[EpochRow]
    claim: Claim | None
    files: Sequence[str]
    dead: Sequence[str]
    attackers: int


def failures(outcome: RunOutcome) -> list[str]:
    """The conditions that do not hold, in words; empty if the run succeeded."""
    return [
        *(f"{name} ended by itself" for name in outcome.dead),
        *(failure for story in outcome.stories for failure in learning_failures(story)),
        *(
            f"{s.name} had a fault of its own: {s.service_failures[0]}"
            for s in outcome.stories
            if s.service_failures
        ),
        *_ledger_failures(outcome),
        *_attack_failures(outcome),
        *(f"an answer created the file {path}" for path in outcome.files),
    ]


def learning_failures(story: Story) -> list[str]:
    """Why one node did not learn from others' verified rollouts."""
    name = story.name
    if not story.steps:
        return [f"{name} made no step"]
    found = []
    if not story.sampled:
        found.append(f"{name} trained on no rollout of others")
    if story.unproven:
        found.append(f"{name} trained on {len(story.unproven)} rollouts that it had not verified")
    change = trend(story.rewards)
    if change is None:
        found.append(f"{name} made one step only")
    elif not change.rose:
        found.append(f"{name}'s reward did not rise: {change.start:.3f} to {change.end:.3f}")
    return found


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
