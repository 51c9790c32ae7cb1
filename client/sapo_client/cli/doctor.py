"""`sapo doctor`, `env` and `repair`: checks of this machine, its data for bug reports, and repair of
databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli.options import Common, IdentityOption, ManifestOption, RpcOption, command
from sapo_client.cli.render import Grid, Pairs

if TYPE_CHECKING:
    from sapo_client.account.repair import RepairedFile
    from sapo_client.cli.checks import Check
    from sapo_client.config import Config


def register(app: typer.Typer) -> None:
    """The commands, on the root."""
    command(app)(doctor)
    command(app)(env)
    command(app)(repair)


def doctor(
    common: Common,
    identity: IdentityOption = None,
    manifest: ManifestOption = None,
    rpc: RpcOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Plan the memory of this model; reads its config.json."),
    ] = None,
) -> None:
    """Check whether this machine can run a node; exit 7 if a check fails."""
    from dataclasses import asdict

    from sapo_client.errors import ExitCode

    flags = {"identity": identity, "swarm.manifest": manifest, "ledger.rpc_urls": rpc, "learner.model": model}
    config = common.resolve(flags).config
    if (address := _asked_hub(config)) is not None:
        common.output.note(f"model: asking {address} for the small files of {config.learner.model}")
    checks = list(_run_checks(config))
    failed = sum(check.state == "fail" for check in checks)
    document = {"format": "sapo/doctor/1", "failed": failed, "checks": [asdict(check) for check in checks]}
    common.output.emit(
        document, Grid(("check", "state", "found"), [(item.name, item.state, item.detail) for item in checks])
    )
    for item in checks:
        if item.state != "ok" and item.hint and not common.as_json:
            common.output.note(f"{item.name}: {item.hint}")
    raise typer.Exit(ExitCode.VERIFICATION if failed else ExitCode.DONE)


def _asked_hub(config: Config) -> str | None:
    """Return the address of the hub that has the configured model; None if the model is local."""
    from pathlib import Path

    from sapo_client.learner.loading.hub import hub_address
    from sapo_client.learner.policy import PACKAGED

    model = config.learner.model
    is_elsewhere = model in PACKAGED or not config.learner.trains or model.startswith(("/", ".", "~"))
    return None if is_elsewhere or Path(model).is_dir() else hub_address()


def _run_checks(config: Config) -> Iterator[Check]:
    """Yield the result of every check, the cheap ones first."""
    from sapo_client.cli import checks, checks_network
    from sapo_client.paths import DataDir

    yield checks.check_python()
    yield checks.check_disk(DataDir(config.data_dir))
    yield checks.check_identity(config.identity)
    yield checks.check_torch(config.learner.device)
    yield checks.check_versions()
    yield from checks.check_extras(config)
    yield from checks.check_model(config)
    yield from checks.check_advantage(DataDir(config.data_dir))
    yield from checks.check_jail()
    manifest, manifest_check = checks_network.check_manifest(config)
    yield manifest_check
    if manifest is not None:
        yield checks_network.check_suite(manifest)
        yield checks_network.check_genesis(manifest)
        yield from checks_network.check_peers(config, manifest)
        yield from checks_network.check_running(DataDir(config.data_dir))
        yield from checks_network.check_chain(config, manifest)


def env(common: Common) -> None:
    """Print versions and machine data for a bug report, without secrets."""
    from sapo_client.cli.environment import environment
    from sapo_client.paths import config_file

    document = environment(common.config or config_file(), common.data())
    common.output.emit(document, Pairs(_flat(document)))


def _flat(document: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            rows.extend((f"{name} {key}", inner) for key, inner in value.items())
        else:
            rows.append((name, value))
    return rows


def repair(common: Common) -> None:
    """Rebuild damaged databases of a stopped node from what can be read; the damaged files are kept."""
    from dataclasses import asdict

    from sapo_client.account.repair import repair as repair_directory
    from sapo_client.errors import NEWER_DATABASE_HINT, ExitCode, SapoError

    results = repair_directory(common.data())
    document = {"format": "sapo/repair/1", "files": [asdict(result) for result in results]}
    columns = ("file", "state", "rows kept", "complete", "damaged file")
    common.output.emit(document, Grid(columns, [_row(result) for result in results]))
    for result in results:
        if result.signs_from_epoch is not None:
            common.output.note(
                "the signing history may be incomplete: this node signs again from epoch"
                f" {result.signs_from_epoch} on, for a slot must never be signed twice"
            )
    for result in results:
        if result.newer is not None:
            raise SapoError(result.newer, hint=NEWER_DATABASE_HINT, exit_code=ExitCode.DATA)


def _row(result: RepairedFile) -> tuple[Any, ...]:
    rows = sum((result.kept or {}).values()) if result.aside else None
    return (result.file, result.state, rows, result.complete, result.aside)
