"""The interface of the chain that a node needs, and its null object for a swarm without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sapo_client.ledger.records import Announcement, ChainLook, LedgerStatus
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account


class ChainRole(Protocol):
    """The functions of a chain that every node needs."""

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the last block before a moment in the past."""

    async def final_root_before(self, timestamp_seconds: int) -> EpochRoot | None:
        """Return the root of the last epoch that is final in that block, if there is one."""

    async def final_roots_before(self, timestamp_seconds: int, first_epoch: int) -> Sequence[EpochRoot]:
        """Return the roots final in that block, ascending: from an epoch on, and the last before it."""

    async def bonds_before(self, timestamp_seconds: int) -> Mapping[Account, int]:
        """Return each account's effective bond in that block, in the token's smallest denomination."""

    async def successions(self) -> tuple[Announcement, ...]:
        """Return the successors that the ledger announces, ascending by activation."""

    async def look(self, now: Callable[[], float], *, claims: bool) -> ChainLook:
        """Return the state of this node's account and the chain's time."""

    @property
    def chain_seconds(self) -> int:
        """The time of the newest block seen by ``look``, Unix seconds; 0 before the first."""

    def status(self) -> LedgerStatus:
        """Return the state of this node's own transactions."""

    def take_errors(self) -> Mapping[str, int]:
        """Return the errors since the last call, counted by kind."""


class NoChain:
    """The null object for a swarm without a chain: beacons are derived from the manifest, nothing is sent."""

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        """Return the empty hash, from which the beacons of such a swarm are derived."""
        return b""

    async def final_root_before(self, timestamp_seconds: int) -> EpochRoot | None:
        """Return None: no epoch is ever final."""
        return None

    async def final_roots_before(self, timestamp_seconds: int, first_epoch: int) -> Sequence[EpochRoot]:
        """Return none: no epoch is ever final."""
        return ()

    async def bonds_before(self, timestamp_seconds: int) -> Mapping[Account, int]:
        """Return nothing: a swarm without a chain has no gate that asks for bonds."""
        return {}

    async def successions(self) -> tuple[Announcement, ...]:
        """Return none: there is no ledger to announce any."""
        return ()

    async def look(self, now: Callable[[], float], *, claims: bool) -> ChainLook:
        """Return an empty view."""
        return ChainLook()

    @property
    def chain_seconds(self) -> int:
        """Return 0: there are no blocks."""
        return 0

    def status(self) -> LedgerStatus:
        """Return a status without transactions."""
        return LedgerStatus(
            pending=0,
            confirmed=0,
            refused=0,
            stuck=0,
            last_error=None,
            lag_seconds=None,
            last_receipt_seconds=None,
            claims=frozenset(),
            endpoints=(),
        )

    def take_errors(self) -> Mapping[str, int]:
        """Return no errors."""
        return {}
