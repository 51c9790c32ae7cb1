"""A live swarm goes from one set of terms to the next: whole nodes, a real chain, real learners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from support.auditor_harness import Funded
from support.ledger import BOB, DEPLOYER, Contracts, found
from support.nodes import Home, until
from support.weekday_policy import FAMILY

from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.bootstrap import live
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import SuccessionNotice
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import epoch_at, epoch_start_seconds
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import successor_to_json
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.suite import Suite
from sapo_protocol.terms.successor import NOTICE_EPOCHS, SETTLED_NOTICE_EPOCHS, Successor
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.jail.launch import sample_digest
from sapo_verification.reputation.evidence import Evidence, Reputation
from sapo_verification.store import open_database
from sapo_verification.suites.catalogue import REASONING_GYM, family

PATIENCE: Final = 300
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
        ledger = {"rpc_urls": (self.contracts.chain.url,), "audit": person is not WORKERS[1]}
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

    def announce(self, number: int = 0, signer: Funded = AUDITOR, **change: Any) -> int:
        """Announce a change with one auditor's signature; return its epoch."""
        activation = self.epoch + NOTICE_EPOCHS
        notice = SuccessionNotice(number, activation, **change)
        signature = secp256k1.sign(signer.secret, notice.digest(self.contracts.domain))
        data = self.contracts.ledger.announce(notice, [signature])
        self.contracts.chain.send(BOB, self.contracts.ledger.address, data)
        return activation

    def bond(self, auditor: Account) -> None:
        """Bond what an auditor needs."""
        token, vault, chain = self.contracts.token, self.contracts.vault, self.contracts.chain
        amount = self.contracts.ledger.auditor_bond()
        chain.send(DEPLOYER, token.address, token.approve(vault.address, amount))
        chain.send(DEPLOYER, vault.address, vault.deposit(auditor, amount))

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


def stored(home: Home) -> set[tuple[int, int]]:
    """Return epochs and families of the rollouts that a node holds."""
    with closing(open_database(home.data.database)) as connection:
        held = EnvelopeStore(connection).latest(100_000)
        rollouts = [parse_rollout(parse_envelope(data, home.manifest.swarm_id).payload) for _, data in held]
    return {(rollout.epoch, rollout.family) for rollout in rollouts}


def final_epochs(home: Home) -> set[int]:
    return {int(str(event["epoch"])) for event in home.events("epoch_final")}


def evidence(home: Home, others: Sequence[Funded], epoch: int) -> list[Evidence]:
    """Return what a node's database says of the others."""
    with closing(open_database(home.data.database)) as connection:
        reputation = Reputation(connection)
        return [reputation.evidence(other.account, epoch) for other in others]


async def go_over(swarm: Swarm, homes: Sequence[Home], activation: int) -> None:
    """Turn the clock until every node has opened itself again, and then to the activation."""
    starts = [len(home.events("node_started")) for home in homes]
    swarm.turn_to(activation - SETTLED_NOTICE_EPOCHS)
    again = zip(homes, starts, strict=True)
    await until(lambda: all(len(home.events("node_started")) > before for home, before in again))
    await until(lambda: swarm.epoch >= activation, PATIENCE)


def count_from(home: Home, epoch: int) -> int:
    """Return how many epochs from one on a node saw become final."""
    return len([each for each in final_epochs(home) if each >= epoch])


async def points(home: Home) -> int:
    """Return the points of a node's account in all final epochs."""
    return int((await home.get("status"))["ledger"]["points"])


@pytest.mark.long
async def test_a_live_swarm_goes_over_to_its_successor_and_replaces_its_auditor(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    swarm = Swarm(tmp_path, weekdays, policy)
    homes = old, new, other = tuple(swarm.home(person) for person in (AUDITOR, *WORKERS))
    async with trio.open_nursery() as nursery, swarm.time():
        for home in homes:
            nursery.start_soon(partial(swarm.live, home, tuple(one for one in homes if one is not home)))
        await until(lambda: all(home.events("epoch_final") for home in homes), PATIENCE)
        before, granted = evidence(old, WORKERS, swarm.epoch), await points(other)
        document = successor_to_json(swarm.successor(retired=(0,)))
        digest = SuccessorFolder(old.data.successors).add(document)  # the auditor's copy is the only one
        activation = swarm.announce(successor=digest)
        await until(lambda: all(home.events("successor_announced") for home in homes))
        assert all({family for _, family in stored(home)} == {0} for home in homes)
        await go_over(swarm, homes, activation)
        await until(lambda: all(max(final_epochs(home)) >= activation for home in homes), PATIENCE)
        assert granted < (granted := await points(other))

        swarm.bond(WORKERS[0].account)
        replaced = swarm.announce(1, leaving=AUDITOR.account, entering=WORKERS[0].account)
        await until(lambda: all(home.events("auditor_replaced") for home in homes))
        swarm.turn_to(replaced - 1)
        await until(lambda: all(replaced - 1 in final_epochs(home) for home in homes), PATIENCE)
        await old.stop()  # nobody needs it any more
        await until(lambda: all(count_from(home, replaced) > 1 for home in (new, other)), PATIENCE)
        assert granted < await points(other)
        await new.stop()
        await other.stop()

    assert [each.bad for each in evidence(new, (AUDITOR, WORKERS[1]), swarm.epoch)] == [0, 0]
    kept = zip(before, evidence(old, WORKERS, swarm.epoch), strict=True)
    assert all(0 < then.audits < now.audits and now.bad == 0 for then, now in kept)
    for home in homes:
        # ignored until a node that has just opened has read the chain; nobody is to blame
        assert {event["reason"] for event in home.events("refused")} <= {"no_signal", "terms_unknown"}
        # this test turns the clock while a round runs
        assert {event["reason"] for event in home.events("own_rollout_refused")} <= {"epoch_past"}
        assert not home.events("service_failed", "successor_trouble", "successor_void")
        assert len(home.events("node_started")) == 2
        assert {family for epoch, family in stored(home) if epoch >= activation} == {1}
