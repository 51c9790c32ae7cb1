"""A live swarm goes from one set of terms to the next: whole nodes, a real chain, real learners."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from support.auditor_harness import Funded
from support.ledger import BOB, Contracts, found
from support.nodes import Home, until
from support.weekday_policy import FAMILY

from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.bootstrap import live
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import SuccessionNotice
from sapo_protocol.epochs import epoch_at, epoch_start_seconds
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import successor_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.successor import Successor
from sapo_verification.jail.launch import sample_digest
from sapo_verification.suites.catalogue import REASONING_GYM, family

AUDITOR: Final = Funded(11)
WORKERS: Final = (Funded(2), Funded(3))
RATE: Final = 5.0
"""Seconds of the swarm to one of ours: an epoch of a minute takes twelve."""

BEFORE: Final = Limits(slots_per_epoch=64, max_completions=6, points_per_epoch=16)


class Swarm:
    """A chain with one auditor, and nodes whose clock is the chain's."""

    def __init__(self, root: Path, suite: Suite, policy: Path) -> None:
        self.root, self.policy, self.hub = root, policy, MemoryHub()
        self.contracts: Contracts = found(
            root / "chain.sqlite", auditors=(AUDITOR.account,), quorum=1, points_cap=BEFORE.points_per_epoch
        )
        self.manifest: Manifest = self.contracts.manifest(suite=suite, limits=BEFORE)
        self.turn_to(102)

    def now(self) -> float:
        return self.contracts.chain.now_seconds

    @property
    def epoch(self) -> int:
        return epoch_at(self.manifest, self.now())

    def home(self, person: Funded) -> Home:
        ledger = {"rpc_urls": (self.contracts.chain.url,), "audit": person is AUDITOR}
        root = self.root / str(person.number)
        root.mkdir()
        return Home(root, person.number, self.manifest, self.policy, ledger=ledger, person=person)

    async def live(self, home: Home, others: tuple[Home, ...]) -> None:
        def opened(options: RunOptions) -> NodeApp:
            home.manifest = kept_manifest(home.data)
            return home.node(self.hub, neighbours=others, clock=self.now, options=options)

        assert await live(opened, RunOptions()) == 0

    @asynccontextmanager
    async def time(self) -> AsyncIterator[None]:
        """Let time pass meanwhile."""

        async def pass_() -> None:
            while True:
                await trio.sleep(0.1)
                self.contracts.chain.now_seconds += 0.1 * RATE

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_)
            yield
            nursery.cancel_scope.cancel()

    def turn_to(self, epoch: int) -> None:
        self.contracts.chain.now_seconds = epoch_start_seconds(self.manifest, epoch) + 0.5

    def announce(self, successor: Digest, activation: int, number: int = 0) -> None:
        notice = SuccessionNotice(number, activation, successor)
        signature = secp256k1.sign(AUDITOR.secret, notice.digest(self.contracts.domain))
        data = self.contracts.ledger.announce(notice, [signature])
        self.contracts.chain.send(BOB, self.contracts.ledger.address, data)

    def successor(self, **changes: Any) -> Successor:
        """Return terms with a family more, and twice the slots."""
        families = (*self.manifest.suite.families, family(FAMILY, "nano-2"))
        fields: dict[str, Any] = {
            "lineage": self.manifest.swarm_id,
            "suite": Suite(REASONING_GYM, families, sample_digest(families)),
            "slots_per_epoch": 128,
            "max_completions": 5,
        }
        return Successor(**{**fields, **changes})


def rollouts(home: Home, *names: str) -> list[tuple[int, str]]:
    """Return epoch and family of a node's rollouts."""
    return [(int(str(event["epoch"])), str(event["family"])) for event in home.events(*names)]


@pytest.mark.long
async def test_a_live_swarm_goes_over_to_its_successor(policy: Path, weekdays: Suite, tmp_path: Path) -> None:
    swarm = Swarm(tmp_path, weekdays, policy)
    homes = tuple(swarm.home(person) for person in (AUDITOR, *WORKERS))
    async with trio.open_nursery() as nursery, swarm.time():
        for home in homes:
            nursery.start_soon(
                partial(swarm.live, home, tuple(other for other in homes if other is not home))
            )
        await until(lambda: all(home.events("epoch_final") for home in homes), 240)
        document = successor_to_json(swarm.successor())
        digest = SuccessorFolder(homes[0].data.successors).add(document)  # the auditor's copy is the only one
        activation = swarm.epoch + 8
        swarm.announce(digest, activation)
        await until(lambda: all(home.events("successor_announced") for home in homes))
        swarm.turn_to(activation - 4)
        await until(lambda: all(len(home.events("node_started")) == 2 for home in homes))
        await until(lambda: swarm.epoch >= activation + 1, 240)
        await until(lambda: all(_final(home) >= activation for home in homes), 240)
        statuses = [json.loads(json.dumps(await home.get("status"))) for home in homes]
        for home in homes:
            await home.stop()
    for home in homes:
        print(
            home.number,
            [e for e in home.events("refused", "own_rollout_refused", "service_failed", "slot_skipped")][:3],
        )
    print(statuses[0]["refused"], [_final(h) for h in homes])


def _final(home: Home) -> int:
    return max((int(str(event["epoch"])) for event in home.events("epoch_final")), default=-1)
