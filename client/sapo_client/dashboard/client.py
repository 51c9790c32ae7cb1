"""A client of a running node's page, for programs on this machine that hold the control token."""

from __future__ import annotations

from dataclasses import dataclass

from sapo_client.dashboard.session import Sessions
from sapo_client.observe.control_client import ControlClient, read_token
from sapo_client.observe.plain import JSON
from sapo_client.paths import DataDir


@dataclass(frozen=True, slots=True)
class PageClient:
    """Client of the page of the node in a data directory; blocking."""

    data: DataDir

    def view(self, name: str) -> JSON:
        """Return a view as the page gets it; the name may carry a query.

        Raises:
            SapoError: no node runs here, or it does not answer (exit code 5).
        """
        root = Sessions(read_token(self.data)).root.strip("/")
        return ControlClient(self.data).get(f"{root}/api/self/{name}")
