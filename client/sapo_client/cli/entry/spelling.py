"""What a person may have meant by a command that does not exist."""

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
    """A group that says which command was probably meant by one that it does not have."""

    suggest_commands = False  # it is done here, over all groups

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


def _paths(group: Any, path: str, name: str) -> list[str]:
    """Return every command of that name in a group and the groups in it, as typed."""
    found = []
    for key, command in group.commands.items():
        if key == name:
            found.append(f"{path} {key}")
        if hasattr(command, "commands"):
            found.extend(_paths(command, f"{path} {key}", name))
    return found
