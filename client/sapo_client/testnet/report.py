"""The end of a testnet: tables for people, report.md, report.json and a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sapo_client.observe.plain import to_json
from sapo_client.testnet import plot, tables
from sapo_client.testnet.plan import Settings
from sapo_client.testnet.story import Story, trend
from sapo_client.testnet.verdict import RunOutcome, failures

if TYPE_CHECKING:
    from rich.console import Console

PLOT = "reward.png"


def all_tables(outcome: RunOutcome) -> list[tables.Table]:
    """The tables of a run, those without a row left out."""
    made = [
        tables.node_table(outcome.stories, outcome.ledger),
        tables.refusal_table(outcome.stories),
        tables.attack_table(outcome.attacks, outcome.files),
        tables.ledger_table(outcome.ledger, outcome.stories),
    ]
    if outcome.claim is not None:
        made.append(tables.claim_table(outcome.claim))
    return [table for table in made if table.rows]


def write(outcome: RunOutcome, settings: Settings, swarm_id: str) -> None:
    """Everything that is left of a run, in its report directory."""
    settings.report.mkdir(parents=True, exist_ok=True)
    title = ", ".join(
        _count(number, word)
        for number, word in (
            (settings.nodes, "node"),
            (settings.attackers, "attacker"),
            (settings.epochs, "epoch"),
        )
    )
    plot.draw(outcome.stories, settings.report / PLOT, title)
    (settings.report / "report.md").write_text(markdown(outcome, title, swarm_id), encoding="utf-8")
    document = json.dumps(as_json(outcome, settings, swarm_id), indent=2)
    (settings.report / "report.json").write_text(document + "\n", encoding="utf-8")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def markdown(outcome: RunOutcome, title: str, swarm_id: str) -> str:
    """The report for people."""
    body = [table.markdown() for table in all_tables(outcome)]
    return "\n".join(
        [f"# {title}\n", f"Swarm `{swarm_id}`.\n", *_result(failures(outcome)), f"![reward]({PLOT})\n", *body]
    )


def _result(failed: Sequence[str]) -> list[str]:
    if not failed:
        return ["Every condition holds.\n"]
    return ["Failed:\n", *(f"* {failure}" for failure in failed), ""]


def as_json(outcome: RunOutcome, settings: Settings, swarm_id: str) -> dict[str, Any]:
    """The report for programs."""
    return {
        "format": "sapo/testnet-report/1",
        "swarm_id": swarm_id,
        "settings": to_json(settings),
        "failures": failures(outcome),
        "nodes": [_node(story) for story in outcome.stories],
        "attacks": to_json([*outcome.attacks]),
        "files_created": list(outcome.files),
        "ledger": to_json([*outcome.ledger]),
        "claim": to_json(outcome.claim),
        "dead": list(outcome.dead),
    }


def _node(story: Story) -> dict[str, Any]:
    return {
        "name": story.name,
        "account": story.account,
        "peer_id": story.peer_id,
        "starts": story.starts,
        "rounds": len(story.steps),
        "rewards": list(story.rewards),
        "trend": to_json(trend(story.rewards)),
        "peers": story.peers,
        "shared": len(story.published),
        "accepted": len(story.admitted),
        "sampled": story.sampled,
        "unproven": list(story.unproven),
        "service_failures": story.service_failures,
        "ledger_errors": story.ledger_errors,
        "refused": dict(sorted(story.refused.items())),
    }


def show(outcome: RunOutcome, settings: Settings, console: Console) -> None:
    """The tables and the result on a terminal."""
    for table in all_tables(outcome):
        console.print(table.rich())
    for failure in failures(outcome):
        console.print(f"failed: {failure}", markup=False, highlight=False)
    if not failures(outcome):
        console.print("every condition holds", highlight=False)
    console.print(f"report: {settings.report / 'report.md'}, plot: {settings.report / PLOT}", highlight=False)
