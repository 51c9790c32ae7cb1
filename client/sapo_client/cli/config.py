"""`sapo config`: the effective configuration, its file and its schema."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show, create and describe the configuration."
)


@command(app)
def show(
    common: Common,
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
) -> None:
    """Show every effective setting: flags, then SAPO_ variables, then the file, then the defaults."""
    settings = common.resolve().settings
    columns = ("setting", "value", "origin") if origin else ("setting", "value")
    document = {
        item.name: {"value": item.value, "origin": item.origin} if origin else item.value for item in settings
    }
    rows = [(item.name, item.value, item.origin)[: len(columns)] for item in settings]
    common.output.emit(document, Grid(columns, rows))


@command(app)
def init(common: Common) -> None:
    """Write a configuration file that holds every setting as a comment with its default."""
    from sapo_client.config_template import write_template
    from sapo_client.paths import config_file

    path = write_template(common.config or config_file())
    common.output.emit({"config": str(path)}, str(path))
    common.output.note("Every setting in it is a comment; remove the # of those you want to change.")


@command(app)
def schema(common: Common) -> None:
    """Print the JSON schema of the configuration file, for editors."""
    from sapo_client.config import Config

    document = Config.model_json_schema()
    common.output.emit(document, json.dumps(document, indent=2))
