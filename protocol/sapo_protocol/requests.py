"""The response to a request: an array of messages, each of them validated as a gossiped one."""

from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
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


def to_response(messages: tuple[bytes, ...]) -> bytes:
    """Return the response that holds the messages."""
    return encode(messages)
