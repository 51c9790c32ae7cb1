"""Requests and responses: an array of digests asks for pages, an array of messages or pages answers.

Each message in a response is validated as a gossiped one, each page by its digest.
"""

from collections.abc import Sequence

from sapo_protocol.constants import MAX_FLAT_VALUES, MAX_REQUESTED_PAGES
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.rules import Rule


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
    """Return the digests of the pages that a peer asks for; none where it asks for anything else."""
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
