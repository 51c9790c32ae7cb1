"""A node's claim on its key: made once, and renewed long before it ends."""

from __future__ import annotations

from functools import partial

import trio
from support.auditor_harness import AuditorHarness, Funded, World
from support.nodes import until
from trio.testing import MockClock

from sapo_client.node.auditing.registration import Registration
from sapo_client.node.gossip.own_certificate import CERTIFICATE_SECONDS
from sapo_client.node.runtime.statements import SignedFields, Signer, describe_registration
from sapo_verification.jail.checkers import CheckerPool

NEWCOMER = Funded(14)
DAY_SECONDS = 24 * 3600
LOOK_SECONDS = 600


class RegistrationHarness:
    """A newcomer's ledger and registration, on the world's clock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.harness = AuditorHarness(world, NEWCOMER, CheckerPool(world.manifest.suite), audits=False)
        self.signer = Signer(world.manifest.chain_id, NEWCOMER.account)
        self.shown: list[SignedFields] = []
        self.registration = Registration(
            manifest=world.manifest,
            signer=self.signer,
            node=NEWCOMER.node,
            ledger=self.harness.ledger,
            events=self.harness.node.log,
            clock=world.now,
            show=self.shown.append,
        )

    async def end_seconds(self) -> int:
        return await self.harness.ledger.registered_until(NEWCOMER.node)

    async def settled(self) -> int:
        """Wait until all queued transactions are on the chain; return the end of the claim."""
        await until(lambda: self.harness.ledger.status().pending == 0)
        return await self.end_seconds()

    def has_queued(self, claims: int) -> bool:
        return len(self.harness.node.events("registration")) == claims

    def new_end(self) -> int:
        return int(self.world.now()) + CERTIFICATE_SECONDS


async def test_a_claim_is_made_kept_and_renewed_at_half_its_time(world: World) -> None:
    harness = RegistrationHarness(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.harness.ledger.run)
        ends = []
        for days in (0, 14, 2, 14, 40):
            world.chain.now_seconds += days * DAY_SECONDS
            ends.append(harness.new_end())
            await harness.registration.look()
            expected = {14: ends[-2]} if len(ends) > 1 else {}
            assert await harness.settled() == expected.get(days, ends[-1])
            if days == 14:
                ends[-1] = ends[-2]
        nursery.cancel_scope.cancel()
    signed = [ends[0], ends[2], ends[4]]
    assert harness.shown == [
        describe_registration(harness.signer, world.manifest, NEWCOMER.node, end) for end in signed
    ]
    assert [event["not_after"] for event in harness.harness.node.events("registration")] == signed
    assert world.contracts.registry.live_nodes(NEWCOMER.account) == (NEWCOMER.node,)


async def test_a_claim_that_waits_is_not_made_again(world: World) -> None:
    harness = RegistrationHarness(world)
    for _ in range(2):
        await harness.registration.look()
        world.chain.now_seconds += DAY_SECONDS
    assert await harness.harness.ledger.pending("register") == len(harness.shown) == 1


async def test_a_running_node_renews_by_itself(world: World, mock_clock: MockClock) -> None:
    mock_clock.rate = 1.0
    harness = RegistrationHarness(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.harness.ledger.run)
        nursery.start_soon(harness.registration.run)
        for number, days in enumerate((0, 16), start=1):
            world.chain.now_seconds += days * DAY_SECONDS
            await trio.testing.wait_all_tasks_blocked(0.05)
            mock_clock.jump(LOOK_SECONDS)
            await until(partial(harness.has_queued, number))
            assert await harness.settled() == harness.new_end()
        nursery.cancel_scope.cancel()
