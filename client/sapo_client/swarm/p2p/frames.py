"""Length-prefixed frames on a stream, read in chunks.

Stock reads the length one byte at a time, and each read through yamux costs a lock and a window
update on the wire. Here one read takes what has arrived, and frames are cut from the buffer. The
length is checked before the body is waited for.
"""

from __future__ import annotations

from typing import Final

import trio
from libp2p.io.abc import Reader
from libp2p.network.stream.exceptions import StreamEOF

_CHUNK_BYTES: Final = 64 * 1024  # yamux' largest frame
_MAX_VARINT_BYTES: Final = 5  # 2^35: beyond any limit in use; encodings need not be minimal


class FrameError(ValueError):
    """A frame that no honest peer sends."""


class FrameReader:
    """Reader of varint-prefixed frames of at most `max_frame_bytes`."""

    def __init__(self, stream: Reader, max_frame_bytes: int) -> None:
        self._stream = stream
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """Return the next frame, or None if the stream ended between two frames."""
        if self._buffer:  # a chunk full of small frames must not block other tasks
            await trio.lowlevel.checkpoint()
        while True:
            frame = self._cut()
            if frame is not None:
                return frame
            try:
                self._buffer += await self._stream.read(_CHUNK_BYTES)
            except StreamEOF:
                return None

    def _cut(self) -> bytes | None:
        length, header_bytes = 0, 0
        for byte in self._buffer[:_MAX_VARINT_BYTES]:
            length |= (byte & 0x7F) << (7 * header_bytes)
            header_bytes += 1
            if byte < 0x80:
                return self._cut_body(length, header_bytes)
        if header_bytes == _MAX_VARINT_BYTES:
            raise FrameError("length prefix too long")
        return None

    def _cut_body(self, length: int, header_bytes: int) -> bytes | None:
        if length > self._max_frame_bytes:
            raise FrameError(f"frame of {length} bytes, {self._max_frame_bytes} allowed")
        end = header_bytes + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[header_bytes:end])
        del self._buffer[:end]
        return frame


def frame(payload: bytes) -> bytes:
    """Return `payload` with its length before it."""
    length, prefix = len(payload), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + payload
