"""Encoding of requests and responses.

A request for pages is an array of digests; a request for certificates
is an array of node ids, or empty for all; every other request here is empty. A response is an array of
messages or pages. Each message in it is validated like a gossiped one, each page by its digest.
"""

from collections.abc import Sequence
from typing import Final

from sapo_protocol.constants import MAX_FLAT_VALUES, MAX_REQUESTED_PAGES
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Digest, NodeId
from sapo_protocol.rules import Rule

MAX_WANTED: Final = 64
"""Nodes in one request for certificates; to learn of more nodes an empty request asks for all."""


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


def parse_page_request(request: bytes) -> tuple[Digest, ...]:
    """Return the digests of the pages that a peer asks for; none if the request is malformed."""
    try:
        items = decode(request, MAX_FLAT_VALUES)
    except RemoteProtocolError:
        return ()
    if not isinstance(items, tuple) or len(items) > MAX_REQUESTED_PAGES:
        return ()
    digests = tuple(item for item in items if isinstance(item, bytes) and len(item) == Digest.SIZE)
    return tuple(map(Digest, digests)) if len(digests) == len(items) else ()


def to_page_request(digests: Sequence[Digest]) -> bytes:
    """Return the request for at most ``MAX_REQUESTED_PAGES`` pages."""
    return encode(tuple(map(bytes, digests)))


def to_response(messages: tuple[bytes, ...]) -> bytes:
    """Return the response that holds the messages."""
    return encode(messages)


def to_request(nodes: Sequence[NodeId]) -> bytes:
    """Return the request for the certificates of at most ``MAX_WANTED`` nodes."""
    return encode([bytes(node) for node in nodes[:MAX_WANTED]])


def parse_request(request: bytes) -> frozenset[NodeId]:
    """Return the nodes whose certificates a request asks for; an empty set asks for all.

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
