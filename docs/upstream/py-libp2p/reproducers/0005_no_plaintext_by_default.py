"""A host offers plaintext, under which a peer can claim any peer id."""

from __future__ import annotations

import trio
from support import main, new_host


async def reproduce() -> str:
    """Return the fault that was found."""
    await trio.lowlevel.checkpoint()
    offered = new_host(201).get_network().upgrader.security_multistream.transports
    unproven = sorted(protocol for protocol in offered if "plaintext" in protocol or "secio" in protocol)
    return f"offered without being asked for: {', '.join(unproven)}" if unproven else ""


if __name__ == "__main__":
    main(reproduce)
