"""A running swarm changes its terms: whole nodes, a real chain, real learners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from support.auditor_harness import FOUR_AUDITORS, Funded
from support.ledger import BOB, DEPLOYER, Contracts, found
from support.nodes import Home, until
from support.weekday_policy import FAMILY

from sapo_client.errors import SapoError
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.bootstrap import NextRun, live
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.observe.control_client import ControlClient
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

PATIENCE: Final = 900
SIGNERS: Final = FOUR_AUDITORS[:3]
"""The fourth auditor never comes, so that nothing is settled without each of these."""

LEAVING: Final = SIGNERS[0]
WORKERS: Final = (Funded(2), Funded(3))
ENTERING: Final = WORKERS[0]
RATE: Final = 2.5
"""Seconds of the swarm to one of ours: an epoch of a minute takes twenty-four."""

NOT_YET: Final = "no peer has sent its document yet"
BEFORE: Final = Limits(slots_per_epoch=64, max_completions=6, points_per_epoch=16)


class Swarm:
    """A chain with four auditors of whom three agree, and nodes whose clock is the chain's."""

    def __init__(self, root: Path, suite: Suite, policy: Path) -> None:
        self.root, self.policy, self.hub = root, policy, MemoryHub()
        self.contracts: Contracts = found(
            root / "chain.sqlite",
            auditors=tuple(auditor.account for auditor in FOUR_AUDITORS),
            quorum=len(SIGNERS),
            points_cap=BEFORE.points_per_epoch,
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

        assert await live(opened, NextRun(RunOptions()), home.data.root) == 0

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

    def announce(self, number: int = 0, **change: Any) -> int:
        """Announce a change with a quorum's signatures; return its epoch."""
        activation = self.epoch + NOTICE_EPOCHS
        notice = SuccessionNotice(number, activation, **change)
        digest = notice.digest(self.contracts.domain)
        signatures = [secp256k1.sign(signer.secret, digest) for signer in SIGNERS]
        data = self.contracts.ledger.announce(notice, signatures)
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
    """Return a node's stored reputation of the others."""
    with closing(open_database(home.data.database)) as connection:
        reputation = Reputation(connection)
        return [reputation.evidence(other.account, epoch) for other in others]


async def go_over(swarm: Swarm, homes: Sequence[Home], activation: int) -> None:
    """Turn the clock until every node has opened itself again, and then to the activation."""
    starts = [len(home.events("node_started")) for home in homes]
    swarm.turn_to(activation - SETTLED_NOTICE_EPOCHS)
    again = [*zip(homes, starts, strict=True)]
    await until(lambda: all(len(home.events("node_started")) > before for home, before in again), PATIENCE)
    await until(lambda: swarm.epoch >= activation, PATIENCE)


async def begin_to_audit_alone(homes: Sequence[Home], starts: int) -> None:
    """Pause the training of nodes as soon as they have started so many times; they audit on."""
    await until(lambda: all(len(home.events("node_started")) == starts for home in homes), PATIENCE)
    for home in homes:
        while len(home.events("paused")) < starts:
            with suppress(SapoError):  # a node on a busy machine answers late
                await trio.to_thread.run_sync(partial(ControlClient(home.data).pause, paused=True))


def count_from(home: Home, epoch: int) -> int:
    """Return how many epochs from one on a node saw become final."""
    return len([each for each in final_epochs(home) if each >= epoch])


async def points(home: Home) -> int:
    """Return the points of a node's account in all final epochs."""
    return int((await home.get("status"))["ledger"]["points"])


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_live_swarm_goes_over_to_its_successor_and_replaces_an_auditor(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    swarm = Swarm(tmp_path, weekdays, policy)
    people = (*SIGNERS, *WORKERS)
    homes = tuple(swarm.home(person) for person in people)
    old, other = homes[0], homes[-1]
    async with trio.open_nursery() as nursery, swarm.time():
        for home in homes:
            nursery.start_soon(partial(swarm.live, home, tuple(one for one in homes if one is not home)))
        await begin_to_audit_alone(homes[: len(SIGNERS)], 1)
        await until(lambda: all(home.events("epoch_final") for home in homes), PATIENCE)
        before, granted = evidence(old, WORKERS, swarm.epoch), await points(other)
        document = successor_to_json(swarm.successor(retired=(0,)))
        digest = SuccessorFolder(old.data.successors).add(document)  # one auditor's copy is the only one
        activation = swarm.announce(successor=digest)
        await until(lambda: all(home.events("successor_announced") for home in homes), PATIENCE)
        assert all({family for _, family in stored(home)} == {0} for home in homes)
        await go_over(swarm, homes, activation)
        await begin_to_audit_alone(homes[: len(SIGNERS)], 2)
        await until(lambda: all(max(final_epochs(home)) >= activation for home in homes), PATIENCE)
        assert granted < (granted := await points(other))

        swarm.bond(ENTERING.account)
        replaced = swarm.announce(1, leaving=LEAVING.account, entering=ENTERING.account)
        await until(lambda: all(home.events("auditor_replaced") for home in homes), PATIENCE)
        swarm.turn_to(replaced - 1)
        await until(lambda: all(replaced - 1 in final_epochs(home) for home in homes), PATIENCE)
        await old.stop()  # nobody needs it any more, and nothing is settled without the new one
        left = homes[1:]
        await until(lambda: all(count_from(home, replaced) > 1 for home in left), PATIENCE)
        assert granted < await points(other)
        for home in left:
            await home.stop()

    for home, own in zip(homes, people, strict=True):
        others = [one for one in people if one is not own]
        assert [each.bad for each in evidence(home, others, swarm.epoch)] == [0, 0, 0, 0]
    kept = zip(before, evidence(old, WORKERS, swarm.epoch), strict=True)
    assert all(0 < then.audits < now.audits for then, now in kept)
    for home in homes:
        # ignored until a node that has just opened has read the chain; nobody is to blame
        assert {event["reason"] for event in home.events("refused")} <= {"no_signal", "terms_unknown"}
        # this test turns the clock while a round runs
        assert {event["reason"] for event in home.events("own_rollout_refused")} <= {"epoch_past"}
        # whoever reads the chain before the auditor that has the document is told so, until it comes
        assert {event["why"] for event in home.events("successor_trouble")} <= {NOT_YET}
        assert not home.events("successor_void")
        # on a busy machine the chain may be slow to answer, and is asked again
        assert all(event["transient"] for event in home.events("service_failed"))
        assert len(home.events("node_started")) == 2
        assert {family for epoch, family in stored(home) if epoch >= activation} == {1}
