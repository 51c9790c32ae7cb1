"""The response to a request: an array of messages, each of them judged like gossip."""

from sapo_protocol.encoding import decode, encode
from sapo_protocol.rules import Rule
from sapo_protocol.schema import array, data


def parse_response(response: bytes) -> tuple[bytes, ...]:
    """The messages in a response, none of them judged yet.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    items = array(decode(response), Rule.RESPONSE_TYPES)
    return tuple(data(item, Rule.RESPONSE_TYPES) for item in items)


def to_response(messages: tuple[bytes, ...]) -> bytes:
    """The response that holds the messages."""
    return encode(messages)
