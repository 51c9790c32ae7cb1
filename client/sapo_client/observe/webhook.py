"""Notifications to an operator's own HTTP address when the node's health changes."""

from __future__ import annotations

import logging
from typing import Final, Literal

import trio
from pydantic import BaseModel, ConfigDict

from sapo_client.observe.findings import HealthFinding

_LOG = logging.getLogger(__name__)

_SECONDS: Final = 10.0
_PAUSES: Final = (2.0, 10.0, 60.0)
"""Seconds between attempts; after the last one the notification is dropped, since the next one is newer."""

_MAX_WAITING: Final = 16


class Notification(BaseModel):
    """The body of a notification: findings that began and ended since the one before."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["sapo/notification/1"] = "sapo/notification/1"
    time: str  # UTC, ISO 8601
    swarm: str
    node: str
    healthy: bool
    text: str  # the same as one text, as chat services show it
    findings: tuple[HealthFinding, ...]
    over: tuple[str, ...] = ()  # codes of findings that ended


class Webhook:
    """Sender of notifications, in order; a service of the node."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._send, self._receive = trio.open_memory_channel[Notification](_MAX_WAITING)

    def notify(self, notification: Notification) -> None:
        """Queue a notification; it is dropped if too many wait."""
        try:
            self._send.send_nowait(notification)
        except trio.WouldBlock:
            _LOG.warning("a notification was dropped: %s", notification.text)

    async def run(self) -> None:
        """Send what is queued until cancelled; may be run again after that."""
        async for notification in self._receive.clone():
            await self._deliver(notification.model_dump_json().encode())

    async def _deliver(self, body: bytes) -> None:
        import httpx

        headers = {"Content-Type": "application/json"}
        for pause in (*_PAUSES, None):
            try:
                async with httpx.AsyncClient(timeout=_SECONDS) as client:
                    response = await client.post(self._url, content=body, headers=headers)
                if response.is_success:
                    return
                why = f"status {response.status_code}"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why = str(error) or type(error).__name__
            _LOG.warning("the webhook did not accept a notification: %s", why)
            if pause is not None:
                await trio.sleep(pause)
