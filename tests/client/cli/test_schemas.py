"""The published schemas are up to date, and the output of commands conforms to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import TypeAdapter
from support.sapo_process import Run

from sapo_client.cli.app import app
from sapo_client.cli.operator.schemas import SCHEMAS, files
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import HealthReport
from sapo_client.observe.status import RoundSummary
from sapo_client.observe.webhook import Notification

OPEN = frozenset(
    f"sapo {name}"
    for name in (
        "bench endurance", "bench gossip", "bench ledger", "bench sample", "bench train", "bench verify",
        "config schema", "dashboard", "env", "keys restore", "keys rotate", "keys signing export",
        "keys signing import", "lab attack", "lab difficulty", "lab economy", "lab guard", "lab islands",
        "lab judge", "lab page", "lab pretrain", "lab report", "lab run", "lab simulate", "ledger audit",
        "ledger bond", "ledger challenge", "ledger claim", "ledger exit", "ledger export",
        "ledger finalise", "ledger payout", "ledger register", "ledger revoke", "ledger status",
        "ledger verify", "ledger withdraw", "logs", "service logs", "swarm change announce",
        "swarm change propose", "swarm change show", "swarm change sign", "testnet page", "testnet up",
        "watch",
    )
)  # fmt: skip
"""Commands without a schema: tables of facts for people, records of experiments, and what others define."""

FOLDER = Path(__file__).parents[3] / "docs" / "reference" / "schemas"


def test_the_files_are_those_of_the_program() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert found == files(), (
        "renew: .venv/bin/python -m sapo_client.cli.operator.schemas docs/reference/schemas"
    )


def commands(group: Any, path: str) -> Iterator[str]:
    context = typer.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def test_every_command_has_a_schema_or_is_named_as_open() -> None:
    described = {name.partition(" --")[0] for name in SCHEMAS} - {"webhook"}
    assert described | OPEN == set(commands(typer.main.get_command(app), "sapo"))
    assert not described & OPEN


def fits(name: str, text: str) -> Any:
    return TypeAdapter(SCHEMAS[name]).validate_json(text)


def test_output_of_commands_matches_its_schema(sapo: Run, tmp_path: Path) -> None:
    for name, *arguments in (
        ("sapo keys new", "key", "--no-passphrase"),
        ("sapo keys show", "key"),
        ("sapo keys list",),
        ("sapo id",),
        ("sapo config show",),
        ("sapo config show", "--origin"),
        ("sapo swarm new", "swarm"),
        ("sapo swarm link", "swarm/manifest.json"),
        ("sapo doctor", "--manifest", "swarm/manifest.json"),
    ):
        done = sapo(*name.split()[1:], *arguments, "--json")
        assert done.stdout, done.stderr
        fits(name, done.stdout)


def test_complete_reports_match_their_schema() -> None:
    finding = HealthFinding(FindingCode.NO_PEERS, FindingLevel.WARNING, "text", "hint")
    report = HealthReport(healthy=True, state="running", findings=(finding,))
    assert fits("sapo status --healthy", report.model_dump_json()) == report
    told = Notification(
        time="t", swarm="s", node="n", healthy=True, text="x", findings=(finding,), over=("no_coins",)
    )
    assert fits("webhook", told.model_dump_json()) == told
    summary = RoundSummary(
        round=1, step=2, reward=0.5, reward_change=None, pool=3, pool_peers=4, own_groups=5,
        external_groups=6, refused_share=0.1, round_seconds=0.2, is_private=True,
    )  # fmt: skip
    assert fits("sapo join", json.dumps(TypeAdapter(RoundSummary).dump_python(summary))) == summary


@pytest.mark.parametrize("name", sorted(files()))
def test_each_schema_names_its_title_and_draft(name: str) -> None:
    schema = json.loads(files()[name])
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["title"]
