"""A connection installs a handler on the root logger."""

from __future__ import annotations

import logging

from support import LOOPBACK, connect, main, new_host


async def reproduce() -> str:
    """Return the fault that was found."""
    root = logging.getLogger()
    root.handlers.clear()
    host, visitor = new_host(201), new_host(202)
    async with host.run([LOOPBACK]), visitor.run([]):
        await connect(visitor, host)
        await visitor.disconnect(host.get_id())
    return f"the root logger has {root.handlers}" if root.handlers else ""


if __name__ == "__main__":
    main(reproduce)
