"""A line of a protocol negotiation is read with whatever length the peer announces."""

from __future__ import annotations

from contextlib import suppress

import trio
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.utils.varint import encode_uvarint
from support import main

ANNOUNCED = 2**40


async def reproduce() -> str:
    """Return the fault that was found."""

    class Stream:
        """A stream with the length of a line, and the most bytes that were asked for at once."""

        rest = encode_uvarint(ANNOUNCED)
        most_asked = 0

        async def read(self, count: int) -> bytes:
            await trio.lowlevel.checkpoint()
            self.most_asked = max(self.most_asked, count)
            taken, self.rest = self.rest[:count], self.rest[count:]
            return taken

    stream = Stream()
    with suppress(MultiselectCommunicatorError):
        await MultiselectCommunicator(stream).read()  # type: ignore[arg-type]
    return f"{stream.most_asked} bytes were asked for at once" if stream.most_asked == ANNOUNCED else ""


if __name__ == "__main__":
    main(reproduce)
