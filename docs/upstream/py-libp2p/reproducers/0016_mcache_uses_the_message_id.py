"""IHAVE announces ids that no peer knows."""

from __future__ import annotations

import hashlib
from typing import Any

from support import PEER, TOPIC, main, message, new_pubsub


async def reproduce() -> str:
    """Return the fault that was found."""

    def content_id(message: Any) -> bytes:
        return hashlib.sha256(message.data).digest()

    pubsub = new_pubsub(pubsub={"msg_id_constructor": content_id})
    messages = [message(b"x" * size, from_id=PEER.to_bytes(), seqno=bytes([size])) for size in range(3)]
    for each in messages:
        await pubsub.router.publish(PEER, each)
    announced = pubsub.router.mcache.window(TOPIC)  # type: ignore[attr-defined]
    expected = [content_id(each) for each in messages]
    return "" if announced == expected else "none of the announced ids is a message id"


if __name__ == "__main__":
    main(reproduce)
