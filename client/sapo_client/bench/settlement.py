"""Cost of settlement with many accounts: bytes, gas, time and memory of every step.

The contracts run on an embedded chain; auditors and nodes use their own stores, agreement, pages and
disputes, and fetch pages over the in-memory swarm. Every account earns in every epoch, and no two tallies
share a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from sapo_client.bench.challenges import Challenges
from sapo_client.bench.costs import StepCost, peak_mebibytes, reset_peak
from sapo_client.bench.ledger import EPOCH_SECONDS, LedgerChain, ledger_chain
from sapo_client.bench.settlement_swarm import POINTS_CAP, AccountsSwarm
from sapo_protocol.identifiers import Account

EPOCH_BUDGET: Final = 2**32 - 1

WEEK_EPOCHS: Final = 7 * 86_400 // EPOCH_SECONDS

DATA_TARGET, PROOF_TARGET = 10_000, 500_000
"""Targets: maximum bytes of a message or of call data; maximum gas of a proof, a question or an answer."""


@dataclass(frozen=True, slots=True)
class AccountsCost:
    """All steps, and the peak memory of the process that ran four auditors, two nodes and the chain."""

    accounts: int
    steps: tuple[StepCost, ...]
    peak_mebibytes: float | None


def accounts_cost(accounts: int) -> AccountsCost:
    """Measure settlement, claims, challenges and a node's return after a week, with a number of accounts."""
    reset_peak()
    with (
        ledger_chain(epoch_budget=EPOCH_BUDGET, points_cap=POINTS_CAP) as chain,
        TemporaryDirectory(prefix="sapo-accounts-") as folder,
    ):
        steps = trio.run(_play, chain, Path(folder), accounts)
    return AccountsCost(accounts, tuple(steps), peak_mebibytes())


async def _play(chain: LedgerChain, folder: Path, accounts: int) -> list[StepCost]:
    names = sorted(Account(sha256(b"account %d" % number).digest()[:20]) for number in range(accounts))
    async with trio.open_nursery() as nursery:
        swarm = AccountsSwarm(chain, folder, names)
        await swarm.start(nursery)
        await swarm.settle(0)
        swarm.costs.clear()  # the first epoch adds to an empty tree: the second one costs more
        await swarm.settle(1)
        swarm.claim()
        Challenges(swarm, 2).play()
        await swarm.settle(2 + WEEK_EPOCHS)
        await swarm.return_after_a_week()
        nursery.cancel_scope.cancel()
    return swarm.costs
