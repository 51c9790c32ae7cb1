"""The response to a request: an array of messages, each of them validated as a gossiped one.

A request is empty, or names the nodes whose certificates are wanted.
"""

from collections.abc import Sequence
from typing import Final

from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import NodeId
from sapo_protocol.rules import Rule

MAX_WANTED: Final = 64
"""Nodes in one request for certificates: more strangers are a new swarm, which an empty request asks for."""


def parse_response(response: bytes) -> tuple[bytes, ...]:
    """Return the messages in a response, none of them validated yet.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    items = decode(response)
    if not isinstance(items, tuple):
        raise RemoteProtocolError(Rule.RESPONSE_TYPES, "not an array")
    messages = tuple(item for item in items if isinstance(item, bytes))
    if len(messages) < len(items):
        raise RemoteProtocolError(Rule.RESPONSE_TYPES, "not an array of byte strings")
    return messages


def to_response(messages: tuple[bytes, ...]) -> bytes:
    """Return the response that holds the messages."""
    return encode(messages)


def to_request(nodes: Sequence[NodeId]) -> bytes:
    """Return the request for the certificates of at most ``MAX_WANTED`` nodes."""
    return encode([bytes(node) for node in nodes[:MAX_WANTED]])


def parse_request(request: bytes) -> frozenset[NodeId]:
    """Return the nodes whose certificates a request names; none if it asks for all that a peer has.

    Whatever is not such a list counts as an empty request: it can ask for no more than that.
    """
    try:
        items = decode(request) if request else ()
    except RemoteProtocolError:
        return frozenset()
    if not isinstance(items, tuple) or len(items) > MAX_WANTED:
        return frozenset()
    keys = [item for item in items if isinstance(item, bytes) and len(item) == NodeId.SIZE]
    return frozenset(map(NodeId, keys)) if len(keys) == len(items) else frozenset()
