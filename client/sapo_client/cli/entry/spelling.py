"""Groups of commands: their lists, and what a person may have meant by a command that does not exist."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

_MEANT: Final = {
    "assess": "sapo status --healthy",
    "health": "sapo status --healthy",
    "help": "sapo --help",
    "info": "sapo status",
    "list": "sapo peers",
    "run": "sapo join",
    "start": "sapo join",
    "train": "sapo join --alone",
    "up": "sapo join",
    "upgrade": "pip install --upgrade sapo-swarm",
    "version": "sapo --version",
}
"""Commands by names that other programs have for them."""


class Commands(TyperGroup):
    """A group that lists its commands with whole sentences, and says which one was probably meant."""

    suggest_commands = False  # it is done here, over all groups

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of the commands; a summary is wrapped and not cut, as the library would."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, summary(each)) for name, each in listed if each is not None and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments name; end with exit code 2 if there is none."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}. {self._meant(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, name: str) -> str:
        """Return a sentence that names what to type."""
        from difflib import get_close_matches

        here, root = ctx.command_path, ctx.find_root()
        close = [f"{here} {found}" for found in get_close_matches(name, self.commands)]
        elsewhere = sorted(_paths(root.command, root.command_path, name))
        known = [_MEANT[name]] if name in _MEANT else []
        meant = list(dict.fromkeys(known or elsewhere or close))
        if not meant:
            return f"`{here} --help` lists all."
        return f"Did you mean {' or '.join(f'`{each}`' for each in meant)}?"


def summary(command: Any) -> str:
    """Return the first sentence of a command's help; of one that is no group, up to a semicolon."""
    paragraph = (command.help or "").partition("\n\n")[0]
    sentence = " ".join(paragraph.split()).partition(". ")[0]
    statement = sentence if hasattr(command, "commands") else sentence.partition(";")[0]
    return statement.rstrip(".") + "."


def _paths(group: Any, path: str, name: str) -> list[str]:
    """Return every command of that name in a group and the groups in it, as typed."""
    found = []
    for key, command in group.commands.items():
        if key == name:
            found.append(f"{path} {key}")
        if hasattr(command, "commands"):
            found.extend(_paths(command, f"{path} {key}", name))
    return found
