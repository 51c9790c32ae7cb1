"""Messages whose author's certificate is missing. No I/O.

A newcomer's first rollout, and the first one that a node receives after it joined an island, may arrive
before the author's certificate. It is ignored then (R5.1), and gossip does not deliver it again. Its
forwarders are asked for the certificate, so the message is kept for the seconds that this takes and validated
once more.
"""

from __future__ import annotations

from typing import Final

from sapo_client.node.gossip.waiting_messages import WaitingMessage, WaitingMessages
from sapo_protocol.identifiers import NodeId

MAX_OF_A_FORWARDER: Final = 16

MAX_BYTES: Final = 2 * 2**20

KEPT_SECONDS: Final = 30.0
"""Time for which a message is kept: longer than a request for a certificate may take."""


class UnintroducedMessages(WaitingMessages[NodeId]):
    """Bounded store of messages that wait for their author's certificate."""

    def __init__(self) -> None:
        super().__init__(
            max_of_a_forwarder=MAX_OF_A_FORWARDER, max_bytes=MAX_BYTES, kept_seconds=KEPT_SECONDS
        )

    def take(self, node: NodeId, now_seconds: float) -> tuple[WaitingMessage[NodeId], ...]:
        """Remove and return the messages of a node, oldest first."""
        return self.take_if(lambda awaited: awaited == node, now_seconds)
