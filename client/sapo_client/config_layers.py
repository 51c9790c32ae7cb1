"""Resolve the settings: flags, the environment, the file, what an earlier join gave, and the defaults.

Every layer is first flattened to dotted names (`learner.completions`), so that the origin of each value is
known, an unknown name is refused in any layer, and a flag that was not given overrides nothing.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sapo_client.atomic_files import write_atomically
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir, config_file, default_data_folder

PREFIX = "SAPO_"
NESTING = "__"
OTHER_VARIABLES = tuple(f"{PREFIX}{name}" for name in ("CONFIG", "KEYS_DIR", "LOCKS_DIR", "REPORTS_DIR"))
"""Variables that name files and are not settings."""

KEPT = ("identity", "ledger.rpc_urls", "swarm.bootstrap")
"""Flags of `sapo join` that a data directory keeps."""

Flat = dict[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setting:
    """An effective value and its origin."""

    name: str
    value: Any  # as JSON: a string, number, boolean, list or null
    origin: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The effective configuration with the origin of every value."""

    config: Config
    settings: tuple[Setting, ...]


def resolve(
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    user_file: bool = True,
) -> Resolved:
    """Return the effective configuration.

    Args:
        flags: dotted name to value; `None` means that the flag was not given.
        file: the file that the user named; it must exist. Unset: the user's default file, if it exists.
        user_file: whether that default is read.

    Raises:
        SapoError: unreadable file, unknown name or refused value (exit code 3).
    """
    values: Flat = {}
    origins: dict[str, str] = {}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for name in given:
        _require_known(name, "among the flags")
    layers = [
        _from_file(file) if file or user_file else ({}, "file"),
        _from_environment(environment),
        (given, "flag"),
    ]
    chosen = [layer["data_dir"] for layer, _ in layers if "data_dir" in layer]
    earlier = _from_earlier_join(Path(chosen[-1]).expanduser() if chosen else default_data_folder())
    for layer, origin in (earlier, *layers):
        values.update(layer)
        origins.update({name: origin.format(variable=variable_of(name)) for name in layer})
    config = _validate(values, origins)
    for name, origin in origins.items():  # the values may be secret
        _LOG.debug("%s is set by %s", name, origin)
    return Resolved(config, _settings(config, origins))


def fields() -> dict[str, FieldInfo]:
    """Return every setting by its dotted name, in the order of the reference."""
    flat: dict[str, FieldInfo] = {}
    for name, info in Config.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            flat.update({f"{name}.{key}": inner for key, inner in section.model_fields.items()})
        else:
            flat[name] = info
    return flat


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: `learner.seed` is `SAPO_LEARNER__SEED`."""
    return PREFIX + name.replace(".", NESTING).upper()


def misspelt_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that `resolve` ignores and that resemble one that is read, each with that one.

    Other `SAPO_` variables may belong to other programs.
    """
    known = {name.replace(".", "_"): variable_of(name) for name in fields()}
    known |= {variable.removeprefix(PREFIX).lower(): variable for variable in OTHER_VARIABLES}
    leaves = {name.rpartition(".")[2]: variable_of(name) for name in fields()}
    found = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or NESTING in variable or variable in known.values():
            continue
        name = variable.removeprefix(PREFIX).lower()
        for names in (known, leaves):
            if close := difflib.get_close_matches(name, names, n=1, cutoff=0.75):
                found[variable] = names[close[0]]
                break
    return found


def _from_earlier_join(data: Path) -> tuple[Flat, str]:
    """Return the settings kept in a data directory: those of its swarm's link, and flags of `sapo join`."""
    directory = DataDir(data)
    path = directory.swarm_settings
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):  # the latter is told where the directory is created
        return {}, "an earlier join"
    except OSError as error:
        raise directory.unusable(error) from error
    except ValueError as error:
        raise _refuse(f"cannot read {path}: {error}", "join the swarm by its link again") from error
    for name in content if isinstance(content, dict) else {"": None}:
        _require_known(name, f"in {path}")
    return content, f"an earlier join, in {path}"


def keep_choices(directory: DataDir, settings: Iterable[Setting]) -> None:
    """Keep the flags of `sapo join` without which the node of this data directory would be another one.

    The next start, and every command on this directory, has them as its settings of the lowest priority.
    """
    chosen = {each.name: each.value for each in settings if each.origin == "flag" and each.name in KEPT}
    if not chosen:
        return
    if os.sep in (key := str(chosen.get("identity", ""))):
        chosen["identity"] = str(Path(key).expanduser().absolute())
    kept, _ = _from_earlier_join(directory.root)
    write_kept(directory, {**kept, **chosen})


def write_kept(directory: DataDir, settings: Mapping[str, Any]) -> None:
    """Replace the settings that a data directory keeps; empty values are left out."""
    content = {name: value for name, value in settings.items() if value}
    write_atomically(directory.swarm_settings, json.dumps(content) + "\n")


def _from_file(named: Path | None) -> tuple[Flat, str]:
    path = named or config_file()
    if named is None and not path.exists():
        return {}, "file"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "create one: sapo config init"
        if not isinstance(error, FileNotFoundError):
            hint = "correct its permissions, or name another one with --config"
        raise _refuse(f"cannot read the configuration {path}: {error.strerror}", hint) from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise _refuse(
            f"{path} is not TOML: {error}", "correct that line, or write a new file: sapo config init"
        ) from error
    flat = _flatten(content)
    for name in flat:
        _require_known(name, f"in {path}")
    return flat, f"file {path}"


def _from_environment(environment: Mapping[str, str]) -> tuple[Flat, str]:
    known = fields()
    by_variable = {variable_of(name): name for name in known}
    flat: Flat = {}
    for variable, text in environment.items():
        if variable in by_variable:
            name = by_variable[variable]
            flat[name] = _parse_text(known[name].annotation, text)
        elif variable.startswith(PREFIX) and NESTING in variable:  # other SAPO_ names may be someone else's
            _require_known(variable.removeprefix(PREFIX).lower().replace(NESTING, "."), f"({variable})")
    return flat, "environment {variable}"


def _flatten(content: Mapping[str, Any]) -> Flat:
    flat: Flat = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
            if not value:
                flat.update(_flatten_empty(name))
        else:
            flat[name] = value
    return flat


def _flatten_empty(section: str) -> Flat:
    """Return no settings for a known section; its bare name, for `_require_known` to refuse, otherwise."""
    return {} if any(name.startswith(f"{section}.") for name in fields()) else {section: {}}


def _parse_text(annotation: Any, text: str) -> Any:
    """Parse an environment variable by the type of its setting."""
    if get_origin(annotation) is tuple:
        return _parse_list(text)
    wanted = {annotation, *get_args(annotation)}  # an optional number is a number here
    if not wanted & {int, float, bool}:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # validation refuses it and names the expected type


def _parse_list(text: str) -> list[str]:
    """Return the values in a variable: separated by commas or spaces, or a list as in the file."""
    if text.lstrip().startswith("["):
        try:
            values = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return [text]  # validation refuses it
        return [str(value) for value in values]
    return text.replace(",", " ").split()


def _require_known(name: str, where: str) -> None:
    known = list(fields())
    if name in known:
        return
    raise _refuse(f"unknown setting {name} {where}", _suggestion(name, known))


def _suggestion(name: str, known: list[str]) -> str:
    leaf = name.rpartition(".")[2]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    close = close or [other for other in known if other.rpartition(".")[2] == leaf]
    if close:
        return f"did you mean {close[0]}?"
    return "`sapo config schema` lists every setting"


def _validate(values: Flat, origins: Mapping[str, str]) -> Config:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        _require_text(name, value, origins)
        section, _, key = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = value
    try:
        return Config.model_validate_json(json.dumps(nested, default=str))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"][:2])
        reason = _reason(problem["msg"], problem.get("ctx", {}).get("pattern"))
        place = f" from {origins[name]}" if name in origins else ", its default,"
        correction = "correct it there" if name in origins else f"set {name} as well"
        raise _refuse(
            f"{name} = {problem['input']!r}{place} is refused: {reason}",
            f"{correction}; `sapo config schema` shows the allowed values of {name}",
        ) from error


def _require_text(name: str, value: object, origins: Mapping[str, str]) -> None:
    """Raise if a value holds bytes that the locale's encoding does not have."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refuse(
            f"{name} = {text!a} from {origins.get(name, 'default')} is not text in the encoding"
            f" {sys.getfilesystemencoding()}",
            "name it in that encoding, or set LC_ALL=C.UTF-8",
        ) from None


def _reason(message: str, pattern: str | None) -> str:
    """Return why a value is refused, without a regular expression.

    Args:
        message: of the validation.
        pattern: that the value does not match, if that is why.
    """
    if pattern is None:
        return message.removeprefix("Value error, ")  # what our own validators say
    if pattern.startswith("^(") and pattern.endswith(")$"):
        return f"it is one of {', '.join(pattern[2:-2].split('|'))}"
    return "it begins with http:// or https://" if pattern == "^https?://" else message


def _settings(config: Config, origins: Mapping[str, str]) -> tuple[Setting, ...]:
    flat = _flatten(config.model_dump(mode="json"))
    return tuple(Setting(name, flat[name], origins.get(name, "default")) for name in fields())


def _refuse(text: str, hint: str) -> SapoError:
    return SapoError(text, hint=hint, exit_code=ExitCode.CONFIG)


def require_no_swarm(given: Mapping[str, object], *, alone: str) -> None:
    """Raise if something that has no effect on a node that trains alone is given beside that choice.

    Args:
        given: values of options or arguments, by the names that their user knows.
        alone: the choice as that user writes it.

    Raises:
        SapoError: one of them is given.
    """
    for name, value in given.items():
        if value:
            raise SapoError(
                f"{name} and {alone} are given, but a node that trains alone has no swarm",
                hint=f"leave out {name} to train alone, or {alone} to join a swarm",
                exit_code=ExitCode.USAGE,
            )
