"""The commented configuration file that `sapo config init` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from sapo_client.config import Config
from sapo_client.config_layers import fields, variable_of
from sapo_client.errors import ExitCode, SapoError

HEADER = """\
# Configuration of sapo. Order of precedence: flags, SAPO_ environment variables, this file, defaults.
# Every setting below is commented out and shows its default.
"""


def template() -> str:
    """Return the file's text: every setting, commented out, with meaning, variable and default."""
    lines = [HEADER]
    section = ""
    for name, info in fields().items():
        part, _, key = name.rpartition(".")
        if part != section:
            section = part
            lines.append(f"\n[{section}]  # {_meaning(section)}")
        lines.append(f"\n# {info.description}  ({variable_of(name)})")
        lines.append(f"# {key} = {_toml(info.get_default(call_default_factory=True))}")
    return "\n".join(lines) + "\n"


def write_template(path: Path) -> Path:
    """Write the template to a new file, and return its path.

    Raises:
        SapoError: it exists or cannot be written (exit code 3).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(template())
    except FileExistsError as error:
        raise SapoError(
            f"{path} already exists and was not changed",
            hint="edit it, or name another file with --config",
            exit_code=ExitCode.CONFIG,
        ) from error
    except OSError as error:
        raise SapoError(
            f"cannot write {path}: {error.strerror}",
            hint="name another file with --config",
            exit_code=ExitCode.CONFIG,
        ) from error
    return path


def _meaning(section: str) -> str:
    kind = Config.model_fields[section].annotation
    return (kind.__doc__ or "").strip() if kind else ""


def _toml(default: Any) -> str:
    match default:
        case None:
            return '""  # unset'
        case Path():
            return json.dumps(str(default))
        case tuple():
            return json.dumps(list(default))
        case _ if default is PydanticUndefined:
            raise AssertionError("every setting has a default")
        case _:
            return json.dumps(default)
