"""A node of a swarm with a chain whose clock is the node's, for tests of its health."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio
from support.health_trial import Begin, HealthTrial
from support.ledger import BOB, Contracts, ServedChain, found
from support.nodes import manifest_of

from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Suite


@dataclass
class ChainTrial:
    """A node of a swarm with a chain whose clock is the node's, but for the node's skew."""

    trial: HealthTrial
    contracts: Contracts

    @property
    def chain(self) -> ServedChain:
        """The chain, with its clock set."""
        self.contracts.chain.now_seconds = self.trial.now() - self.trial.skew
        return self.contracts.chain

    async def blocks_until(self, holds: Callable[[list[str]], bool]) -> None:
        """Let the chain make a block every 40 seconds until a condition holds for the findings."""
        with trio.fail_after(3600):
            while not holds(await self.trial.codes()):
                await self.send_coins(self.trial.home.identity.account)
                self.trial.pass_by(40)
                await trio.sleep(1)  # of the mock clock: the node looks at the chain

    async def send_coins(self, to: Account) -> None:
        """Send a coin in a new block."""
        await trio.to_thread.run_sync(partial(self.chain.send, BOB, to, b"", value_wei=10**18))


def begin_with_chain(
    begin: Begin,
    weekdays: Suite,
    folder: Path,
    *,
    epoch_seconds: int = 36_000,
    terms: Mapping[str, Any] = MappingProxyType({}),
    **ledger: object,
) -> ChainTrial:
    """Return a node of a swarm on an embedded chain, which serves over HTTP.

    Args:
        terms: of the contracts, other than those of ``make_plan``.
        ledger: settings of the node's configuration.
    """
    genesis, epoch = int(time.time()) - 60, epoch_seconds
    limits = manifest_of(weekdays).limits
    contracts = found(
        folder / "chain.sqlite",
        genesis_seconds=genesis,
        epoch_seconds=epoch,
        points_cap=limits.points_per_epoch,
        **terms,
    )
    manifest = contracts.manifest(suite=weekdays, genesis_seconds=genesis, epoch_seconds=epoch, limits=limits)
    trial = begin(manifest, ledger={"rpc_urls": (contracts.chain.url,), **ledger})
    return ChainTrial(trial, contracts)
