"""`sapo init`: set up a machine without questions."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from sapo_client.cli.keys import PLAIN_WARNING, show_identity, show_next
from sapo_client.cli.options import Common, PassphraseFile, command


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(init)


def init(
    common: Common,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the identity to make.")] = "key",
    passphrase_file: PassphraseFile = None,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Store the keys unencrypted. For testnets.")
    ] = False,
) -> None:
    """Create an identity, a configuration file and a data directory."""
    from sapo_client import keystore
    from sapo_client.config_template import write_template
    from sapo_client.passphrase import PassphraseSource
    from sapo_client.paths import config_file
    from sapo_client.private_files import refuse_existing

    path = keystore.locate(name)
    refuse_existing(path)
    file = common.config or config_file()
    if not file.exists():
        common.output.note(f"configuration  {write_template(file)}")
    common.output.note(f"data           {common.data().create().root}")
    source = PassphraseSource(passphrase_file)
    keystore.create(path, None if no_passphrase else source.read_new(f"identity {path.stem}"))
    if no_passphrase:
        common.output.warn(PLAIN_WARNING)
    show_identity(common, name)
    common.output.note(f"Back it up now, a lost key cannot be recovered: sapo keys backup {quote(name)} FILE")
    show_next(common, name)
