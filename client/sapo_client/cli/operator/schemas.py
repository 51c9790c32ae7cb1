"""JSON schemas of what `--json` prints; `python -m sapo_client.cli.operator.schemas docs/reference/schemas`.

The reports of a node are pydantic models, which refuse every field that is not in their schema. The output
that commands assemble themselves is described here; a test runs the commands and validates their output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from sapo_client.account.repair import RepairedFile
from sapo_client.cli.checks import Check
from sapo_client.observe.health import HealthReport
from sapo_client.observe.reports import PeersReport, RolloutsReport, StatusReport
from sapo_client.observe.status import RoundSummary
from sapo_client.observe.webhook import Notification

_STRICT: Final = ConfigDict(extra="forbid", strict=True)


def _record(title: str, /, **fields: Any) -> type[BaseModel]:
    """Return a model of exactly these fields."""
    definitions: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(title, __config__=_STRICT, **definitions)


_KEY: Final = _record(
    "Key", name=str, node_id=str, peer_id=str, account=str, protection=str, created=str, path=str
)
_PROCESSES: Final = list[_record("Process", name=str, role=str, state=str, step=int | None, command=str)]  # type: ignore[misc]

SCHEMAS: Final[Mapping[str, Any]] = {
    "sapo status": StatusReport,
    "sapo status --healthy": HealthReport,
    "sapo peers": PeersReport,
    "sapo rollouts": RolloutsReport,
    "sapo join": RoundSummary,
    "sapo stop": _record("Stop", stopping=bool, finish=bool),
    "sapo pause": _record("Pause", paused=bool),
    "sapo resume": _record("Resume", paused=bool),
    "sapo id": _KEY,
    "sapo keys new": _KEY,
    "sapo keys show": _KEY,
    "sapo init": _KEY,
    "sapo keys list": list[Any] | dict[str, Any],
    "sapo keys backup": _record("Backup", backup=str),
    "sapo config show": dict[str, Any],
    "sapo config init": _record("ConfigFile", config=str),
    "sapo doctor": _record("Doctor", format=str, failed=int, checks=list[Check]),
    "sapo repair": _record("Repair", format=str, files=list[RepairedFile]),
    "sapo swarm new": _record("Founded", manifest=str, swarm=str, link=str),
    "sapo swarm link": _record("Linked", manifest=str | None, swarm=str, link=str),
    "sapo swarm serve": _record("Served", url=str, link=str),
    "sapo swarm deploy": _record(
        "Deployed", manifest=str, swarm=str, chain=int, registry=str, ledger=str, bootstrap=list[str]
    ),
    "sapo swarm faucet": _record("Dripped", served=str),
    "sapo service install": _record("Installed", unit=str, started=bool),
    "sapo service uninstall": _record("Removed", removed=str),
    "sapo service status": dict[str, str | bool],
    "sapo export model": _record("ExportedModel", folder=str, step=int),
    "sapo export rollouts": _record("ExportedRollouts", folder=str, rollouts=int),
    "sapo export parquet": _record("ExportedTable", file=str, rollouts=int),
    "sapo export report": _record("ExportedReport", folder=str, steps=int, files=list[str]),
    "sapo testnet status": _record("Testnet", format=str, rpc_url=str, processes=_PROCESSES),
    "sapo testnet down": _record("Ended", ended=list[str]),
    "sapo ledger explain": _record(
        "Explained", epoch=int, registered=bool, root=str, total=int, budget=int, counted=int, points=int,
        rollouts=list[dict[str, str]],
    ),
    "sapo verify": _record("Verified", format=str, verified=bool, steps=list[dict[str, Any]]),
    "webhook": Notification,
}  # fmt: skip
"""Model of each command's output; `sapo join` prints one object per round."""


def files() -> dict[str, str]:
    """Return every schema by its file's name."""
    return {f"{name.removeprefix('sapo ').replace(' ', '-')}.json": _text(name) for name in SCHEMAS}


def _text(name: str) -> str:
    schema = TypeAdapter(SCHEMAS[name]).json_schema(mode="serialization")
    title = name if name == "webhook" else f"{name} --json"
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
    return json.dumps(document, indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the schemas into the given folder."""
    [folder] = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
