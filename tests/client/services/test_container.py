"""The container's files against the program: no Docker runs here, `make container` is for that."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from sapo_client.cli.app import app

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "client" / "deploy" / "docker"
DOCKERFILE: Final = (FOLDER / "Dockerfile").read_text()
SHELL_SCRIPT: Final = (FOLDER / "check.sh").read_text()
README: Final = (FOLDER.parent / "README.md").read_text()

Instruction = tuple[str, list[str]]


def instructions() -> Iterator[Instruction]:
    """Yield the Dockerfile's instructions with their words; lists in brackets are words, too."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        options, bracket, inside = rest.partition("[")
        words = shlex.split(options)
        yield name, [*words, *yaml.safe_load(bracket + inside)] if bracket else words


def last(name: str) -> list[str]:
    return [words for found, words in instructions() if found == name][-1]


def variables() -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in last("ENV"))


def service() -> dict[str, Any]:
    compose: Any = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert set(compose["volumes"]) == {"data"}
    found: dict[str, Any] = compose["services"]["node"]
    return found


def copied() -> list[str]:
    """Return what the Dockerfile copies from the source tree."""
    return [
        source.rstrip("/")
        for name, words in instructions()
        if name == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    ]


def command_lines() -> Iterator[list[str]]:
    """Yield every `sapo` command line of the Dockerfile, the script and the page."""
    entry = last("ENTRYPOINT")
    yield entry + last("CMD")
    health = last("HEALTHCHECK")
    yield health[health.index("CMD") + 1 :]
    for text in (SHELL_SCRIPT, README):
        for line in re.findall(r"(?m)^docker compose (?:run|exec) .*$", text):
            words = shlex.split(line)
            inside = words[words.index("node") + 1 :]
            yield inside if "exec" in words else entry + inside


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line as the program reads them; it must take all of them."""
    assert words[0] == "sapo"
    command: Any = typer.main.get_command(app)
    context, rest = typer.Context(command, info_name="sapo"), words[1:]
    while hasattr(command, "list_commands"):
        command = command.get_command(context, rest.pop(0))
        context = typer.Context(command, parent=context)
    options, left, _ = command.make_parser(context).parse_args(rest)
    assert left == []
    return dict(options)


def test_every_command_line_is_one_of_the_program() -> None:
    lines = list(command_lines())
    assert len(lines) == 10
    for line in lines:
        options = parsed(line)
        places = [str(options[each]) for each in ("data_dir", "identity") if options.get(each)]
        assert [place for place in places if not place.startswith("/data/")] == [], line


def test_health_asks_the_node_that_the_command_starts() -> None:
    start, health, *_ = map(parsed, command_lines())
    assert start["data_dir"] == health["data_dir"]
    assert health["healthy"]
    [published] = service()["ports"]
    [listen] = start["listen"]
    assert listen == f"/ip4/0.0.0.0/tcp/{last('EXPOSE')[0]}"
    assert published == f"{last('EXPOSE')[0]}:{last('EXPOSE')[0]}"


def test_everything_that_lasts_is_in_the_volume_of_the_user() -> None:
    [volume] = last("VOLUME")
    assert service()["volumes"] == [f"data:{volume}"]
    assert service()["read_only"]
    user = last("USER")[0]
    made = " ".join(word for name, words in instructions() if name == "RUN" for word in words)
    assert f"useradd --uid 10001 --home-dir {volume}" in made
    assert f"install -d -o {user} -g {user} -m 0700 {volume}" in made
    folders = {name: value for name, value in variables().items() if name.endswith(("_DIR", "HOME"))}
    assert {value for value in folders.values() if not value.startswith(volume)} == set()
    source = "\n".join(path.read_text() for path in (ROOT / "client").rglob("*.py"))
    assert [name for name in folders if name.startswith("SAPO_") and f'"{name}"' not in source] == []


def test_pytorch_is_the_range_of_the_lock() -> None:
    run = next(words for name, words in instructions() if name == "RUN" and "--index-url" in words)
    files = [run[place + 1] for place, word in enumerate(run) if word == "--requirement"]
    assert files == ["lock/torch.txt", "lock/demo.txt"]
    assert all((ROOT / file).is_file() for file in files)


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[1] == "*"
    assert sorted(kept) == sorted(copied())
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    context = (FOLDER / service()["build"]["context"]).resolve()
    assert context == ROOT.resolve()
    assert (context / service()["build"]["dockerfile"]).resolve() == FOLDER.resolve() / "Dockerfile"


def test_everything_that_the_package_is_built_of_is_copied() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    document = tomllib.loads(text)
    packages = document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    project = document["project"]
    needed = {package.partition("/")[0] for package in packages}
    needed |= {"pyproject.toml", project["readme"], *project["license-files"]}
    assert needed | {"lock"} == set(copied())
