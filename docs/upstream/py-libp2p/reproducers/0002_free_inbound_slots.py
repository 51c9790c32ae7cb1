"""An inbound connection that ended keeps its slot."""

from __future__ import annotations

from support import LOOPBACK, connect, holds, main, new_host


async def reproduce() -> str:
    """Return the fault that was found."""
    host, visitor = new_host(201), new_host(202)
    async with host.run([LOOPBACK]), visitor.run([]):
        await connect(visitor, host)
        limiter = host.get_network()._inbound_limiter
        await holds(lambda: limiter.borrowed_tokens == 1)
        await visitor.disconnect(host.get_id())
        if await holds(lambda: limiter.borrowed_tokens == 0):
            return ""
    return "the slot of a connection that ended is still taken"


if __name__ == "__main__":
    main(reproduce)
