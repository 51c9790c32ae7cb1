"""A message that is only late counts against the peer that forwarded it."""

from __future__ import annotations

from typing import Any

import libp2p.pubsub.pubsub as pubsub_module
from support import PEER, TOPIC, main, message, new_pubsub


async def reproduce() -> str:
    """Return the fault that was found."""
    ignore = getattr(pubsub_module, "IgnoreMessage", None)

    def validate(*_: Any) -> bool:
        if ignore is not None:
            raise ignore("late, not wrong")
        return False  # the only other way to drop a message

    pubsub = new_pubsub()
    pubsub.set_topic_validator(TOPIC, validate, is_async_validator=False)
    await pubsub.push_msg(PEER, message(from_id=PEER.to_bytes(), seqno=bytes(8)))
    blamed = pubsub.router.scorer.invalid_messages[PEER][TOPIC]  # type: ignore[attr-defined]
    return f"counted as {blamed:.0f} invalid message" if blamed else ""


if __name__ == "__main__":
    main(reproduce)
