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
"""Findings with which no watchdog keep-alive is sent, since a restart may help. It does not help against an
empty account or a silent chain; a learner that hangs is killed by the node after its call's deadline; and a
node that waits for its model's server or for disk space retries by itself."""


_PATIENCE: Final = f"EXTEND_TIMEOUT_USEC={SERVICE_START_SECONDS * 1_000_000}\nWATCHDOG=1"
_LOADING: Final = "the learner loads its model: the node takes part once that is done"


@dataclass(slots=True)
class ServiceManager:
    """The manager's socket, if there is one.

    No message waits for the manager: one that it has no room for is dropped, and the next one is sent within
    the interval of the health. That the node is ready is repeated until it was sent.

    Attributes:
        address: path of a datagram socket; one that begins with ``@`` is abstract.
    """

    address: str | None
    _owes_ready: bool = False

    def ready(self) -> None:
        """Send that the node has joined."""
        self._owes_ready = not self._send("READY=1")

    def starts_later(self, finding: HealthFinding) -> None:
        """Send why the node does not run yet, and extend the start timeout from now on.

        A watchdog keep-alive is sent, too: after an earlier start the manager expects one.
        """
        self._send(f"{_status(finding)}\n{_PATIENCE}")

    def loading(self, call: CallFacts | None) -> None:
        """Extend the start timeout and send a watchdog keep-alive while the learner loads its model.

        A node that is opened again, for other terms or after a full disk, has sent long ago that it is ready.

        Args:
            call: the running call to the learner, if any; nothing is sent beyond its deadline.
        """
        if call is not None and not call.is_overdue:
            self._send(f"STATUS={_LOADING}\n{_PATIENCE}")

    def assessed(self, findings: Sequence[HealthFinding], call: CallFacts | None) -> None:
        """Send the first finding, and a watchdog keep-alive unless the node makes no progress.

        Args:
            call: the running call to the learner, if any. Within its deadline it counts as progress.
        """
        codes = {finding.code for finding in findings}
        works = call is not None and not call.is_overdue
        fed = works or bool(codes & WAITED_FOR) or not codes & STALLED
        lines = ["READY=1"] if self._owes_ready else []
        lines += [_status(*findings), *(["WATCHDOG=1"] if fed else [])]
        if self._send("\n".join(lines)):
            self._owes_ready = False

    def _send(self, message: str) -> bool:
        """Send a message unless that would have to wait; return whether nothing is left to be sent."""
        if self.address is None:
            return True
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
                stream.setblocking(False)  # a manager that is stuck must not halt the node
                stream.connect(address)
                stream.send(message.encode())
        except OSError as error:
            _LOG.warning("cannot send to the service manager: %s", error)
            return False
        return True


def _status(*findings: HealthFinding) -> str:
    """Return the line that the manager shows."""
    status = findings[0].line() if findings else "nothing is wrong"
    return f"STATUS={status.replace(os.linesep, ' ')}"


def service_manager(environment: Mapping[str, str] = os.environ) -> ServiceManager:
    """Return the service manager of this process."""
    return ServiceManager(environment.get("NOTIFY_SOCKET") or None)
