"""Results of a testnet run: tables on the terminal, report.md, report.json and a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sapo_client.observe.plain import to_json
from sapo_client.testnet import plot, tables
from sapo_client.testnet.auditors import auditor_rows
from sapo_client.testnet.node_record import NodeRecord, trend
from sapo_client.testnet.plan import Settings
from sapo_client.testnet.skills import skills_of
from sapo_client.testnet.verdict import RunOutcome, failures

if TYPE_CHECKING:
    from rich.console import Console

PLOT = "reward.png"


def all_tables(outcome: RunOutcome) -> list[tables.Table]:
    """Return the tables of a run that have rows."""
    made = [
        tables.node_table(outcome.records, outcome.ledger),
        tables.skill_table(outcome.skills),
        tables.refusal_table(outcome.records),
        tables.attack_table(outcome.attacks, outcome.files),
        tables.ledger_table(outcome.ledger, outcome.records),
        tables.auditor_table(auditor_rows(outcome.records)),
    ]
    if outcome.claim is not None:
        made.append(tables.claim_table(outcome.claim))
    return [table for table in made if table.rows]


def write(outcome: RunOutcome, settings: Settings, swarm_id: str) -> None:
    """Write all results of a run into its report directory."""
    settings.report.mkdir(parents=True, exist_ok=True)
    title = ", ".join(
        _count(number, word)
        for number, word in (
            (settings.nodes, "node"),
            (settings.attackers, "attacker"),
            (outcome.epochs, "epoch"),
        )
    )
    plot.draw(
        outcome.records,
        settings.report / PLOT,
        title,
        outcome.attacked_seconds,
        starts_differ=settings.starts_differ,
    )
    (settings.report / "report.md").write_text(markdown(outcome, title, swarm_id), encoding="utf-8")
    document = json.dumps(as_json(outcome, settings, swarm_id), indent=2)
    (settings.report / "report.json").write_text(document + "\n", encoding="utf-8")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def markdown(outcome: RunOutcome, title: str, swarm_id: str) -> str:
    """Return the report as Markdown."""
    body = [table.markdown() for table in all_tables(outcome)]
    return "\n".join(
        [f"# {title}\n", f"Swarm `{swarm_id}`.\n", *_result(failures(outcome)), f"![reward]({PLOT})\n", *body]
    )


def _result(failed: Sequence[str]) -> list[str]:
    if not failed:
        return ["Every condition holds.\n"]
    return ["Failed:\n", *(f"* {failure}" for failure in failed), ""]


def as_json(outcome: RunOutcome, settings: Settings, swarm_id: str) -> dict[str, Any]:
    """Return the report as plain values for JSON."""
    return {
        "format": "sapo/testnet-report/1",
        "swarm_id": swarm_id,
        "settings": to_json(settings),
        "epochs": outcome.epochs,
        "failures": failures(outcome),
        "nodes": [_node(record) for record in outcome.records],
        "attacks": to_json([*outcome.attacks]),
        "files_created": list(outcome.files),
        "ledger": to_json([*outcome.ledger]),
        "auditors": [{**asdict(row), "lied": row.lied} for row in auditor_rows(outcome.records)],
        "claim": to_json(outcome.claim),
        "dead": list(outcome.dead),
    }


def _node(record: NodeRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "account": record.account,
        "peer_id": record.peer_id,
        "starts": record.starts,
        "rounds": len(record.steps),
        "rewards": list(record.rewards),
        "trend": to_json(trend(record.rewards)),
        "skills": to_json(skills_of(record)),
        "peers": record.peers,
        "shared": len(record.published),
        "accepted": len(record.admitted),
        "sampled": record.sampled,
        "unproven": list(record.unproven),
        "service_failures": record.service_failures,
        "ledger_errors": record.ledger_errors,
        "refused": dict(sorted(record.refused.items())),
    }


def show(outcome: RunOutcome, settings: Settings, console: Console) -> None:
    """Print the tables and the result on a terminal."""
    for table in all_tables(outcome):
        console.print(table.rich())
    for failure in failures(outcome):
        console.print(f"failed: {failure}", markup=False, highlight=False)
    if not failures(outcome):
        console.print("every condition holds", highlight=False)
    console.print(f"report: {settings.report / 'report.md'}, plot: {settings.report / PLOT}", highlight=False)
