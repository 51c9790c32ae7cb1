"""A peer that lists rollouts and sends them, or does what an attacker does, on an in-memory network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import trio

from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import ContentId, SwarmId
from sapo_protocol.islands.catch_up import (
    MAX_LISTED,
    CatchUpStatus,
    FetchedRollouts,
    IdPage,
    parse_fetch_request,
    parse_id_request,
)
from sapo_protocol.topics import (
    certificates_protocol,
    equivocations_protocol,
    rollout_ids_protocol,
    rollouts_protocol,
)

Copy = Callable[[ContentId], bytes | None]


def by_id(swarm_id: SwarmId, messages: Iterable[bytes]) -> dict[ContentId, bytes]:
    """Return messages by their content ids."""
    return {parse_envelope(message, swarm_id).content_id: message for message in messages}


class ListingPeer:
    """A peer with rollouts of one epoch; a test replaces what an attacker does otherwise.

    Attributes:
        listed: what it lists; not what it sends.
        send: returns what it sends for an id.
        delay_seconds: before each answer with ids or rollouts.
        asked: the ids of every request for rollouts.
        pages: how many lists it was asked for.
    """

    def __init__(
        self,
        hub: MemoryHub,
        name: str,
        swarm_id: SwarmId,
        epoch: int,
        messages: Mapping[ContentId, bytes] | None = None,
        *,
        certificates: Iterable[bytes] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.peer_id = name
        self.address = f"/memory/{name}/p2p/{name}"
        self.transport = MemoryTransport(hub, name, on_bug=_raise, host=host)
        self.epoch = epoch
        self.listed: list[ContentId] = sorted(messages or ())
        self.send: Copy = dict(messages or {}).get
        self.delay_seconds = 0.0
        self.asked: list[tuple[ContentId, ...]] = []
        self.pages = 0
        self._certificates = encode(tuple(certificates))
        self.transport.serve(certificates_protocol(swarm_id), self._known)
        self.transport.serve(equivocations_protocol(swarm_id), self._nothing)
        self.transport.serve(rollout_ids_protocol(swarm_id), self._ids)
        self.transport.serve(rollouts_protocol(swarm_id), self._rollouts)

    async def _known(self, _peer_id: str, _request: bytes) -> bytes:
        return self._certificates

    async def _nothing(self, _peer_id: str, _request: bytes) -> bytes:
        return encode(())

    async def _ids(self, _peer_id: str, request: bytes) -> bytes:
        await trio.sleep(self.delay_seconds)
        asked = parse_id_request(request)
        assert asked is not None
        self.pages += 1
        if asked.epoch != self.epoch:
            return IdPage(CatchUpStatus.GIVEN).to_bytes()
        there = [each for each in self.listed if each > (asked.after or b"")]
        page = tuple(there[:MAX_LISTED])
        return IdPage(CatchUpStatus.GIVEN, page, page[-1] if len(there) > len(page) else None).to_bytes()

    async def _rollouts(self, _peer_id: str, request: bytes) -> bytes:
        await trio.sleep(self.delay_seconds)
        ids = parse_fetch_request(request)
        assert ids is not None
        self.asked.append(ids)
        return FetchedRollouts(CatchUpStatus.GIVEN, tuple(map(self.send, ids))).to_bytes()


def _raise(error: Exception) -> None:
    raise error
