"""`sapo verify`: verify one envelope from a file in numbered steps, without a network."""

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
LABELS = {True: ("ok", "green"), False: ("fail", "red"), None: ("skip", "yellow")}


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(verify)


def verify(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An envelope as received.")],
    manifest: ManifestOption = None,
) -> None:
    """Verify an envelope step by step; exit 7 if a step fails.

    The author's certificate, and with a chain the beacon, come from the data directory of a node that
    received the envelope; without them the step is skipped, and a warning says so.
    """
    from dataclasses import asdict

    from sapo_client.account.verify_file import steps
    from sapo_client.errors import ExitCode
    from sapo_client.paths import DataDir

    config = common.resolve({"swarm.manifest": manifest}).config
    taken: list[VerificationStep] = []
    for step in steps(_read(file), config.swarm.manifest, DataDir(config.data_dir)):
        taken.append(step)
        if not common.as_json:
            print_step(len(taken), step)
    failed = any(step.ok is False for step in taken)
    skipped = [step.name for step in taken if step.ok is None]
    if common.as_json:
        numbered = [{"number": number} | asdict(step) for number, step in enumerate(taken, 1)]
        common.output.emit({"format": "sapo/verify/1", "verified": not failed, "steps": numbered})
    if skipped and not failed:
        common.output.warn(
            f"verified, except for steps that need data that is missing here: {', '.join(skipped)}"
        )
    raise typer.Exit(ExitCode.VERIFICATION if failed else ExitCode.DONE)


def print_step(number: int, step: VerificationStep) -> None:
    """Print a step's number, outcome, name and detail."""
    word, colour = LABELS[step.ok]
    mark = styled(f"{word:<4}", colour, sys.stdout)
    sys.stdout.write(f"{number:>2}  {mark}  {step.name:<12}  {plain(step.detail)}\n")
    sys.stdout.flush()  # the next step may take seconds


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
