"""Scans of the chain's history: registered accounts, and the last block before a time."""

import threading
import time
from collections.abc import Callable
from typing import Any

from web3 import Web3

from sapo_client.ledger.contract import Registry
from sapo_client.ledger.errors import LedgerError, NotYet
from sapo_client.ledger.logs import LOG_CHUNKS
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account, Digest, NodeId


class RegistryView:
    """The registry's events, each read once after it is settled.

    The registry keeps no hash over them. A reorganisation that is deeper than the confirmations is recognised
    by the hash of the last block that was read, and everything is read again.

    Args:
        confirmations: blocks, an event's own included, after which it counts as settled.
    """

    def __init__(self, rpc: Rpc, registry: Registry, *, confirmations: int) -> None:
        self._rpc = rpc
        self._registry = registry
        self._confirmations = confirmations
        self._next_block: int | None = None
        self._begun: tuple[int, bytes] | None = None  # the last block up to which reading began, and its hash
        self._not_after: dict[tuple[Account, NodeId], int] = {}
        self._lock = threading.Lock()

    def live(self, now_seconds: float) -> frozenset[tuple[Account, NodeId]]:
        """Return the settled claims that are live at a moment."""
        with self._lock:
            self._catch_up()
            return frozenset(claim for claim, end in self._not_after.items() if end > now_seconds)

    def end_seconds(self, account: Account, node: NodeId) -> int:
        """Return the end of an account's claim on a node key as last read; 0 if there is none."""
        with self._lock:
            return self._not_after.get((account, node), 0)

    def _catch_up(self) -> None:
        settled = self._rpc.common_block() - self._confirmations + 1
        if settled < (0 if self._begun is None else self._begun[0]):
            return  # the endpoints are behind, or a reorganisation goes on
        self._forget_if_reorganised(settled)
        if self._next_block is None:
            self._next_block = self._registry.deployment_block()
        sizes = iter(LOG_CHUNKS)  # begins with the largest each time: a refusal may have been transient
        blocks = next(sizes)
        while self._next_block <= settled:
            last = min(self._next_block + blocks - 1, settled)
            try:
                events = self._registry.events(self._next_block, last)
            except NotYet:  # a refusal, of so many logs perhaps
                if (blocks := next(sizes, 0)) == 0:
                    raise
                continue
            for event in events:
                self._not_after[event.account, event.node] = event.not_after_seconds
            self._next_block = last + 1

    def _forget_if_reorganised(self, settled: int) -> None:
        """Forget everything if the last block that was read is no longer the chain's; note the next one."""
        numbers = [settled] if self._begun is None else [settled, self._begun[0]]
        hashes = self._rpc.agree(lambda web3: tuple(bytes(_block(web3, n)["hash"]) for n in numbers))
        if self._begun is not None and hashes[1] != self._begun[1]:
            self._next_block, self._not_after = None, {}
        self._begun = settled, hashes[0]


def numbered_block_before(
    rpc: Rpc, timestamp_seconds: int, *, confirmations: int, now: Callable[[], float] = time.time
) -> tuple[int, Digest]:
    """Return number and hash of the last block with a timestamp below a past moment, as endpoints agree.

    Timestamps never fall along a chain, so the block is found by steps back from the head that double, then
    by halving. Every node finds the same one, for later blocks carry later timestamps. Each endpoint is
    searched separately: one wrong timestamp would mislead a common search.

    Raises:
        LedgerError: the moment is still to come, the chain is younger, the block is not settled yet, or
            the endpoints disagree.
    """
    if now() < timestamp_seconds:
        raise LedgerError("the moment is still to come", hint="check this machine's clock")
    what = f"the last block before second {timestamp_seconds}"
    return rpc.agree(lambda web3: _last_block_before(web3, timestamp_seconds, confirmations), what)


def _last_block_before(web3: Web3, timestamp_seconds: int, confirmations: int) -> tuple[int, Digest]:
    head = int(web3.eth.block_number)
    number = _search(lambda n: int(_block(web3, n)["timestamp"]) < timestamp_seconds, head)
    if head - number + 1 < confirmations:
        raise NotYet("the block before the epoch is not settled yet", hint="wait for the next blocks")
    return number, Digest(bytes(_block(web3, number)["hash"]))


def first_block_from(
    rpc: Rpc, timestamp_seconds: int, *, confirmations: int, now: Callable[[], float] = time.time
) -> Digest:
    """Return the hash of the first block with a timestamp not below a past moment, as endpoints agree.

    Raises:
        LedgerError: as for ``numbered_block_before``; or there is no such block yet.
    """
    if now() < timestamp_seconds:
        raise LedgerError("the moment is still to come", hint="check this machine's clock")
    what = f"the first block from second {timestamp_seconds} on"
    return rpc.agree(lambda web3: _first_block_from(web3, timestamp_seconds, confirmations), what)


def _first_block_from(web3: Web3, timestamp_seconds: int, confirmations: int) -> Digest:
    head = int(web3.eth.block_number)
    number = 1 + _search(lambda n: int(_block(web3, n)["timestamp"]) < timestamp_seconds, head)
    if head - number + 1 < max(1, confirmations):
        raise NotYet("the block of the draw is not there or not settled yet", hint="wait for the next blocks")
    return Digest(bytes(_block(web3, number)["hash"]))


def _search(is_before: Callable[[int], bool], head: int) -> int:
    low, high, step = head, head + 1, 1
    while not is_before(low):
        if low == 0:
            raise LedgerError(
                "the chain has no block before this moment", hint="a swarm's genesis lies after its chain's"
            )
        low, high, step = max(0, low - step), low, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_before(middle) else (low, middle)
    return low


def _block(web3: Web3, number: int) -> Any:
    return web3.eth.get_block(number)
