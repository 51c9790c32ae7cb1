"""Units with which a service manager runs a node: systemd for a user or the whole machine, launchd on macOS.

The node's own health assessment resets the watchdog: a node that makes no progress for ``WATCHDOG_SECONDS``
is restarted. After mistakes of the operator (exit codes 2, 3, 4 and 8) it is not restarted. A node whose
server does not answer, or whose disk is full, waits and does not end.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.config import LAST_CHECKPOINT_SECONDS, SERVICE_START_SECONDS
from sapo_client.errors import ExitCode

WATCHDOG_SECONDS: Final = 600
ROUND_END_SECONDS: Final = 300
"""Part of the stop time-out for the end of the round and for the parts that stop after the last
checkpoint."""

STOP_SECONDS: Final = ROUND_END_SECONDS + int(LAST_CHECKPOINT_SECONDS)
"""Time-out of a stop, which ends the round and writes a checkpoint: minutes each for a large model."""

_NO_RESTART: Final = (ExitCode.USAGE, ExitCode.CONFIG, ExitCode.KEYSTORE, ExitCode.DATA)
_CLEAN: Final = (ExitCode.INTERRUPTED, ExitCode.TERMINATED)

_HARDENED: Final = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=~@clock @cpu-emulation @debug @module @mount @obsolete @raw-io @reboot @swap",
    "SystemCallErrorNumber=EPERM",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "UMask=0077",
)
"""Restrictions that also work without privileges. What is not restricted: namespaces, for the jail's own
layers, and writable memory that is executed, for compiled kernels of PyTorch."""

_HARDENED_SYSTEM: Final = (
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "RemoveIPC=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
)

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=%$@+,-]+")
"""Words that need no quotes."""

LABEL: Final = "org.sapo-swarm"


@dataclass(frozen=True, slots=True)
class ServiceTerms:
    """The parameters of a unit.

    Attributes:
        command: the join command, with absolute paths.
        data: the node's data directory.
        passphrase_file: of the identity; none if its keys are not encrypted.
        user: account of the operating system that a unit of the whole machine runs as; none for a unit of
            the user who installs it.
    """

    name: str
    command: tuple[str, ...]
    data: Path
    passphrase_file: Path | None = None
    user: str | None = None


def systemd_unit(terms: ServiceTerms) -> str:
    """Return the text of a systemd unit."""
    return "\n".join((*_unit(), "", *_service(terms), "", *_install(terms))) + "\n"


def _unit() -> Iterator[str]:
    yield "[Unit]"
    yield "Description=sapo node"
    yield "Documentation=man:systemd.service(5)"
    yield "Wants=network-online.target"
    yield "After=network-online.target"
    yield "StartLimitIntervalSec=1h"
    yield "StartLimitBurst=12"


def _service(terms: ServiceTerms) -> Iterator[str]:
    command = list(terms.command)
    yield "[Service]"
    yield "Type=notify"
    yield "NotifyAccess=main"
    if terms.passphrase_file is not None:
        yield f"LoadCredential=passphrase:{_quoted(str(terms.passphrase_file))}"
        command += ["--passphrase-file", "%d/passphrase"]
    yield f"ExecStart={' '.join(map(_quoted, command))}"
    yield f"WatchdogSec={WATCHDOG_SECONDS}"
    yield f"TimeoutStartSec={SERVICE_START_SECONDS}"
    yield f"TimeoutStopSec={STOP_SECONDS}"
    yield "KillMode=mixed"
    yield "Restart=on-failure"
    yield "RestartSec=15"
    yield f"SuccessExitStatus={_codes(_CLEAN)}"
    yield f"RestartPreventExitStatus={_codes(_NO_RESTART)}"
    yield "Nice=5"
    yield "IOSchedulingClass=idle"
    yield "OOMPolicy=continue"  # the node restarts a learner that the kernel killed
    yield "Environment=PYTHONUNBUFFERED=1"
    yield from _HARDENED
    if terms.user is not None:
        yield f"User={terms.user}"
        yield f"StateDirectory={terms.name}"
        yield f"Environment=HOME=/var/lib/{terms.name}"
        yield from _HARDENED_SYSTEM
        yield f"ReadWritePaths=-{_quoted(str(terms.data))}"


def _install(terms: ServiceTerms) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'default.target' if terms.user is None else 'multi-user.target'}"


def launchd_agent(terms: ServiceTerms) -> str:
    """Return the text of a launchd agent; launchd has no watchdog, so it restarts what ends with an error."""
    command = list(terms.command)
    if terms.passphrase_file is not None:
        command += ["--passphrase-file", str(terms.passphrase_file)]
    log = str(terms.data / "logs" / "launchd.log")
    agent = {
        "Label": f"{LABEL}.{terms.name}",
        "ProgramArguments": command,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 60,
        "ExitTimeOut": STOP_SECONDS,
        "ProcessType": "Background",
        "Nice": 5,
        "LowPriorityIO": True,
        "EnvironmentVariables": {"PYTHONUNBUFFERED": "1"},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(agent, sort_keys=False).decode()


def _codes(codes: Sequence[ExitCode]) -> str:
    return " ".join(str(int(code)) for code in codes)


def _quoted(word: str) -> str:
    """Return a word of a systemd command line: quoted where needed; only `%d` keeps its meaning."""
    plain = word.replace("$", "$$") if word.startswith("%d/") else word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
