"""A validator that raises ends the pubsub service."""

from __future__ import annotations

from typing import Any

from support import PEER, TOPIC, main, message, new_pubsub


async def reproduce() -> str:
    """Return the fault that was found."""

    def validate(*_: Any) -> bool:
        raise KeyError("a bug of the application")

    pubsub = new_pubsub()
    pubsub.set_topic_validator(TOPIC, validate, is_async_validator=False)
    try:
        await pubsub.push_msg(PEER, message(from_id=PEER.to_bytes(), seqno=bytes(8)))
    except KeyError as error:
        return f"{error!r} leaves push_msg, a task of the service"
    return ""


if __name__ == "__main__":
    main(reproduce)
