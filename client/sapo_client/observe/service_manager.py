"""Messages to the service manager that started this process: systemd's notification socket.

Protocol: sd_notify(3). Without ``NOTIFY_SOCKET`` in the environment nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client.config import SERVICE_START_SECONDS
from sapo_client.observe.findings import FindingCode, HealthFinding
from sapo_client.observe.health import WAITED_FOR, CallFacts

_LOG = logging.getLogger(__name__)

STALLED: Final = frozenset({FindingCode.NO_ROUND})
"""Findings with which the watchdog is not fed: a restart may help. Against an empty account or a silent chain
it does not, and a learner that hangs is killed by the node itself after its call's deadline. It does not help
a node either that waits for its model's server or for space: that node tries again by itself, and says so."""


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """The manager's socket, if there is one.

    Attributes:
        address: path of a datagram socket; one that begins with ``@`` is abstract.
    """

    address: str | None

    def ready(self) -> None:
        """Tell that the node has joined."""
        self._send("READY=1")

    def starts_later(self, finding: HealthFinding) -> None:
        """Tell why the node does not run, and ask for as long as a start may take from now on.

        The watchdog is fed for the manager that was told of an earlier start.
        """
        patience = f"EXTEND_TIMEOUT_USEC={SERVICE_START_SECONDS * 1_000_000}"
        self._send(f"{_status(finding)}\n{patience}\nWATCHDOG=1")

    def assessed(self, findings: Sequence[HealthFinding], call: CallFacts | None) -> None:
        """Tell the first finding, and feed the watchdog unless the node makes no progress.

        Args:
            call: the learner's, if one runs. Within its deadline it is progress, however long a round takes.
        """
        codes = {finding.code for finding in findings}
        works = call is not None and not call.is_overdue
        fed = works or bool(codes & WAITED_FOR) or not codes & STALLED
        self._send(_status(*findings) + ("\nWATCHDOG=1" if fed else ""))

    def _send(self, message: str) -> None:
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
                stream.connect(address)
                stream.sendall(message.encode())
        except OSError as error:
            _LOG.warning("the service manager was not told: %s", error)


def _status(*findings: HealthFinding) -> str:
    """Return the line that the manager shows."""
    status = findings[0].line() if findings else "nothing is wrong"
    return f"STATUS={status.replace(os.linesep, ' ')}"


def service_manager(environment: Mapping[str, str] = os.environ) -> ServiceManager:
    """Return the service manager of this process."""
    return ServiceManager(environment.get("NOTIFY_SOCKET") or None)
