"""`sapo verify`: verify one envelope from a file, stage by stage, without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli.options import Common, ManifestOption, command
from sapo_client.cli.render import styled
from sapo_client.observe.terminal import plain

if TYPE_CHECKING:
    from sapo_client.account.verify_file import VerificationStep

MAX_FILE_BYTES = 1024 * 1024  # eight times the largest message
LABELS = {True: ("ok", "green"), False: ("fail", "red"), None: ("-", "cyan")}
MISSING = ("skip", "yellow")


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(verify)


def verify(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An envelope as received.")],
    manifest: ManifestOption = None,
) -> None:
    """Verify an envelope by the numbered stages of the specification; exit 7 if one fails.

    The author's certificate, and with a chain the beacon, come from the data directory of a node that
    received the envelope; without them the stage is skipped, and a warning says so. So is the checker's on a
    machine that is too busy. Stages that no file can show, such as the time at which it came, are marked with
    a dash.
    """
    from sapo_client.account.verify_file import steps
    from sapo_client.errors import ExitCode
    from sapo_client.paths import DataDir

    config = common.resolve({"swarm.manifest": manifest}).config
    taken: list[VerificationStep] = []
    for step in steps(_read(file), config.swarm.manifest, DataDir(config.data_dir)):
        taken.append(step)
        if not common.as_json:
            print_step(step)
    failed = any(step.ok is False for step in taken)
    skipped = [step.name for step in taken if step.is_skipped]
    if common.as_json:
        numbered = [
            {"number": step.stage, "name": step.name, "ok": step.ok, "detail": step.detail, "rule": step.rule}
            for step in taken
        ]
        common.output.emit({"format": "sapo/verify/2", "verified": not failed, "steps": numbered})
    if skipped and not failed:
        common.output.warn(
            f"verified, except for stages that could not be checked here: {', '.join(skipped)}"
        )
    raise typer.Exit(ExitCode.VERIFICATION if failed else ExitCode.DONE)


def print_step(step: VerificationStep) -> None:
    """Print a stage's number, outcome, name and detail."""
    word, colour = MISSING if step.is_skipped else LABELS[step.ok]
    mark = styled(f"{word:<4}", colour, sys.stdout)
    sys.stdout.write(f"{step.stage:>2}  {mark}  {step.name:<15}  {plain(step.detail)}\n")
    sys.stdout.flush()  # the next stage may take seconds


def _read(file: Path) -> bytes:
    from sapo_client.errors import ExitCode, SapoError

    try:
        with file.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES)
    except OSError as error:
        raise SapoError(
            f"cannot read {file}: {error.strerror}",
            hint="name a file that holds one envelope; `sapo export rollouts DIR` writes such files",
            exit_code=ExitCode.USAGE,
        ) from error
