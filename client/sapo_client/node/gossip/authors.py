"""Whose a gossiped message is: authors take turns where a relay may send a peer less than it has to forward.

Turns are the accounts', not the nodes': an account may certify many node keys.
"""

from __future__ import annotations

from contextlib import suppress

from sapo_client.swarm.transport import AuthorOf
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import SwarmId
from sapo_protocol.rollout import parse_rollout


def author_of(swarm_id: SwarmId) -> AuthorOf:
    """Return a function that names the account of an accepted rollout, and nobody for other kinds."""

    def name(message: bytes) -> str | None:
        with suppress(RemoteProtocolError):
            envelope = parse_envelope(message, swarm_id)
            if envelope.kind is Kind.ROLLOUT:
                return parse_rollout(envelope.payload).account.hex()
        return None

    return name
