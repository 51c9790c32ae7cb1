"""Installation of a node's unit with the service manager of this machine, and its state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.services.units import LABEL, ServiceTerms, launchd_agent, systemd_unit

_SECONDS: Final = 60
_SHOWN: Final = ("LoadState", "ActiveState", "SubState", "UnitFileState", "StatusText", "NRestarts", "Result")


@dataclass(frozen=True, slots=True)
class InstalledUnit:
    """A node's unit on this machine.

    Attributes:
        whole_machine: a systemd unit of the machine, not of the user.
    """

    name: str
    whole_machine: bool = False
    platform: str = sys.platform

    @property
    def uses_launchd(self) -> bool:
        """Whether this machine has launchd."""
        return self.platform == "darwin"

    @property
    def path(self) -> Path:
        """The unit's file."""
        if self.uses_launchd:
            return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.{self.name}.plist"
        if self.whole_machine:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        configuration = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(configuration) / "systemd" / "user" / f"{self.name}.service"

    def write(self, terms: ServiceTerms) -> Path:
        """Write the unit's file; return its path.

        Raises:
            SapoError: it cannot be written (exit code 3).
        """
        text = launchd_agent(terms) if self.uses_launchd else systemd_unit(terms)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SapoError(
                f"cannot write {self.path}: {error.strerror}",
                hint="run it as root for --system, or install it for your user alone: leave out --system",
                exit_code=ExitCode.CONFIG,
            ) from error
        return self.path

    def start_commands(self) -> tuple[tuple[str, ...], ...]:
        """Return the commands that enable and start the unit."""
        if self.uses_launchd:
            return (("launchctl", "bootstrap", f"gui/{os.getuid()}", str(self.path)),)
        return (*self._systemctl("daemon-reload"), *self._systemctl("enable", "--now", self.name))

    def remove_commands(self) -> tuple[tuple[str, ...], ...]:
        """Return the commands that stop and disable the unit."""
        if self.uses_launchd:
            return (("launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}.{self.name}"),)
        return self._systemctl("disable", "--now", self.name)

    def require_installed(self) -> None:
        """Raise unless there is a unit.

        Raises:
            SapoError: there is none.
        """
        if not self.path.exists():
            raise SapoError(
                f"no service is installed: there is no {self.path}",
                hint="install one: sapo service install --identity key",
                exit_code=ExitCode.CONFIG,
            )

    def facts(self) -> dict[str, str | bool]:
        """Return the unit's state in the service manager.

        Raises:
            SapoError: there is no unit, or no manager answers.
        """
        self.require_installed()
        if self.uses_launchd:
            listed = run(("launchctl", "print", f"gui/{os.getuid()}/{LABEL}.{self.name}"))
            return {"unit": str(self.path), "loaded": True, "manager": listed.splitlines()[0]}
        [command] = self._systemctl("show", "--property", ",".join(_SHOWN), self.name)
        lines = (line.partition("=") for line in run(command).splitlines())
        return {"unit": str(self.path), **{name: value for name, _, value in lines}}

    def logs_command(self, *, follow: bool, last: int) -> tuple[str, ...]:
        """Return the command that shows what the service printed."""
        if self.uses_launchd:
            return ("log", "show", "--predicate", f'process == "{self.name}"', "--last", "1d")
        user = () if self.whole_machine else ("--user",)
        return (
            "journalctl", *user, "--unit", self.name, "--lines", str(last), "--no-pager",
            *(("--follow",) if follow else ()),
        )  # fmt: skip

    def _systemctl(self, *arguments: str) -> tuple[tuple[str, ...], ...]:
        user = () if self.whole_machine else ("--user",)
        return (("systemctl", *user, *arguments),)


def run(command: Sequence[str]) -> str:
    """Run a command of the service manager; return its output.

    Raises:
        SapoError: it is not there, or fails (exit code 3).
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(command, str(error)) from error
    if done.returncode:
        raise _failed(command, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _failed(command: Sequence[str], why: str) -> SapoError:
    return SapoError(
        f"`{' '.join(command)}` failed: {why}",
        hint="without a running service manager run `sapo join` in a terminal or in a container",
        exit_code=ExitCode.CONFIG,
    )
