"""Negotiation of protocols (multistream-select) in lines of bounded length.

Stock reads as many bytes as a peer announces, up to 2^64: before the handshake it allocates that memory,
after it it buffers what arrives. Here a longer line is refused once its length is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from libp2p.abc import IMultiselectCommunicator
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.exceptions import ParseError
from libp2p.io.exceptions import IOException, MessageTooLarge
from libp2p.protocol_muxer.exceptions import MultiselectClientError, MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect import DEFAULT_NEGOTIATE_TIMEOUT, Multiselect
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from sapo_client.swarm.p2p.frames import FrameError

_MAX_LINE_BYTES: Final = 1024  # as js-libp2p has it; the longest of ours has about 30


class BoundedCommunicator(MultiselectCommunicator):
    """Reader and writer of lines; a malformed line raises `FrameError`."""

    @staticmethod
    def replacing(communicator: IMultiselectCommunicator) -> BoundedCommunicator:
        """Return one on the same stream: stock names its own class in the code."""
        return BoundedCommunicator(cast(MultiselectCommunicator, communicator).read_writer)

    async def read(self) -> str:
        """Return the next line without its end."""
        try:
            line = await read_varint_prefixed_bytes_limited(self.read_writer, _MAX_LINE_BYTES)
        except (MessageTooLarge, ParseError) as error:
            raise FrameError(str(error)) from error
        except IOException as error:
            raise MultiselectCommunicatorError("the stream ended in a negotiation") from error
        if not line.endswith(b"\n"):
            raise FrameError("a line of a negotiation has no end")
        try:
            return line[:-1].decode()
        except UnicodeDecodeError as error:
            raise FrameError("a line of a negotiation is not text") from error


class BoundedMultiselect(Multiselect):
    """The responding side; the stream guard penalises malformed lines."""

    async def negotiate(
        self, communicator: IMultiselectCommunicator, negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT
    ) -> tuple[TProtocol | None, StreamHandlerFn | None]:
        """Return the protocol that the peer chose, and its handler."""
        return await super().negotiate(BoundedCommunicator.replacing(communicator), negotiate_timeout)


class BoundedMultiselectClient(MultiselectClient):
    """The initiating side."""

    async def select_one_of(
        self,
        protocols: Sequence[TProtocol],
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> TProtocol:
        """Return the first protocol that the peer has too; raise the one error that stock expects."""
        bounded = BoundedCommunicator.replacing(communicator)
        try:
            return await super().select_one_of(protocols, bounded, negotiate_timeout)
        except FrameError as error:
            raise MultiselectClientError(str(error)) from error
