"""Frames are independent of chunking, and oversize frames are refused at once."""

from __future__ import annotations

import itertools

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.io.abc import Reader
from libp2p.network.stream.exceptions import StreamEOF

from sapo_client.swarm.p2p.frames import FrameError, FrameReader, frame


class Chunks(Reader):
    """A stream that hands out bytes in given pieces, then ends."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self.chunks:
            raise StreamEOF
        return self.chunks.pop(0)


async def _read_all(data: bytes, cuts: list[int], max_frame_bytes: int) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader = FrameReader(Chunks([data[a:b] for a, b in itertools.pairwise(edges) if a < b]), max_frame_bytes)
    frames = []
    while (payload := await reader.next()) is not None:
        frames.append(payload)
    return frames


@given(st.lists(st.binary(max_size=400), max_size=8), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_chunking_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frame(payload) for payload in payloads)
    assert trio.run(_read_all, data, cuts, 400) == payloads


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_end_in_frames_or_in_a_frame_error(data: bytes, cuts: list[int]) -> None:
    try:
        frames = trio.run(_read_all, data, cuts, 64)
    except FrameError:
        return
    assert all(len(payload) <= 64 for payload in frames)


@pytest.mark.parametrize("data", [frame(bytes(65))[:1], b"\xff" * 5])
def test_a_bad_length_is_refused_before_the_body_comes(data: bytes) -> None:
    with pytest.raises(FrameError):
        trio.run(_read_all, data, [], 64)
