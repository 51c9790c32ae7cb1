"""Since when the swarm's number of islands is not known, for the node's health."""

from __future__ import annotations

from collections.abc import Callable

import trio

from sapo_client.observe.health import IslandFacts
from sapo_protocol.epochs import epoch_at
from sapo_protocol.manifest import Manifest
from sapo_verification.islands import IslandMap


class IslandWatch:
    """Notes at each look whether this epoch's number of islands is known.

    Args:
        clock: returns the Unix time in seconds.
    """

    def __init__(self, manifest: Manifest, islands: IslandMap, clock: Callable[[], float]) -> None:
        self._manifest = manifest
        self._islands = islands
        self._clock = clock
        self._unknown_since: float | None = None

    def facts(self) -> IslandFacts | None:
        """Return what the node's health shows of the islands; none in a swarm that is never divided."""
        if not self._islands.is_divided:
            return None
        epoch = epoch_at(self._manifest, max(self._clock(), self._manifest.genesis_seconds))
        if self._islands.knows(epoch):
            self._unknown_since = None
            return IslandFacts()
        now_seconds = trio.current_time()
        if self._unknown_since is None:
            self._unknown_since = now_seconds
        return IslandFacts(now_seconds - self._unknown_since, self._islands.count(epoch))
