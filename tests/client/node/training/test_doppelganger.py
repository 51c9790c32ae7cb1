"""Doppelganger protection: a node does not sign if another process signs with its identity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import Home, manifest_of, until
from support.swarm import EPOCH, Identity, make_manifest

from sapo_client.errors import ExitCode, SapoError
from sapo_client.node.runtime.clock import wall_clock
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite
from sapo_verification.observer import Observer
from sapo_verification.signing.database import SigningDatabase, SlotShare
from sapo_verification.types import AdmittedRollout

ME, SIBLING, OTHER = Identity(1), Identity(1, key=1), Identity(2)
SECONDS = 20.0


class Listener:
    """A node and its doppelganger protection, on trio's mock clock."""

    def __init__(
        self, root: Path, *, share: str = "0/1", clean: bool = False, seconds: float = SECONDS
    ) -> None:
        self.hub = MemoryHub()
        self.manifest = make_manifest()
        self.node = GossipHarness(self.hub, ME, self.manifest, root / "me")
        self.signing = SigningDatabase(root / "signing.sqlite")
        self.parts = DoppelgangerParts(
            manifest=self.manifest,
            node=ME.node,
            account=ME.account,
            signing=self.signing,
            share=SlotShare.parse(share),
            transport=self.node.transport,
            telemetry=self.node.telemetry,
            clock=self.node.now,
            seconds=seconds,
            stopped_clean=clean,
            data_dir=root,
        )
        self.watch = Doppelganger(self.parts)
        self.node.engine.observe(self.watch)
        self.draining = trio.Event()

    def hear(self, author: Identity, slot: int, epoch: int = EPOCH) -> None:
        """Let the node admit a rollout that came from outside."""
        for identity in (ME, SIBLING):
            if not self.node.knows(identity):
                self.node.certificates.admit(identity.certificate(self.manifest).to_bytes(), self.node.now())
        message = author.message(self.manifest, slot=slot, epoch=epoch)
        self.node.gossip.validate_rollout(message, "peer")

    def sign(self, slots: int, epoch: int = EPOCH) -> None:
        """Take slots, as this data directory does when it signs."""
        self.signing.take_slots(
            self.manifest.swarm_id,
            ME.account,
            epoch=epoch,
            count=slots,
            slots_per_epoch=32,
            share=self.parts.share,
        )

    async def waited_seconds(self) -> float:
        """Return how long the node had to listen until it might sign."""
        started = trio.current_time()
        await self.watch.require_alone(self.draining)
        return trio.current_time() - started


async def refused(listener: Listener) -> bool:
    """Whether the node may not sign."""
    try:
        await listener.watch.require_alone(listener.draining)
    except SapoError as error:
        told = (error.exit_code, "swarm.slot_share" in error.hint)
    else:
        return False
    assert told == (ExitCode.KEYSTORE, True)
    return True


async def test_a_node_listens_before_it_signs(tmp_path: Path, autojump_clock: object) -> None:
    listener = Listener(tmp_path)
    assert await listener.waited_seconds() == 2 * SECONDS, "alone: for company first"
    assert await listener.waited_seconds() == 0, "once is enough"


@pytest.mark.parametrize(
    ("clean", "signed_epoch", "waits"),
    [
        (True, EPOCH, False),
        (True, EPOCH - 1, False),
        (True, EPOCH - 2, True),
        (False, EPOCH, True),
        (True, None, True),
    ],
)
async def test_only_a_recent_clean_stop_skips_the_wait(
    tmp_path: Path, autojump_clock: object, clean: bool, signed_epoch: int | None, waits: bool
) -> None:
    listener = Listener(tmp_path, clean=clean)
    if signed_epoch is not None:
        listener.sign(2, signed_epoch)
    assert (await listener.waited_seconds() > 0) is waits


async def test_a_drain_ends_the_wait(tmp_path: Path, autojump_clock: object) -> None:
    listener = Listener(tmp_path)
    listener.draining.set()
    assert await listener.waited_seconds() == 0


@pytest.mark.parametrize(
    ("share", "author", "slot", "epoch", "double"),
    [
        ("0/1", ME, 4, EPOCH, True),
        ("0/1", ME, 9, EPOCH, True),
        ("0/1", ME, 3, EPOCH, False),  # below the own mark: a power cut lost the rollout, not the mark
        ("0/1", ME, 4, EPOCH - 1, False),  # of an epoch that is over: no slot of it will be signed
        ("0/1", SIBLING, 4, EPOCH, True),  # another key of the account, undivided
        ("0/2", SIBLING, 9, EPOCH, False),  # ... in its own part of the slots
        ("0/2", SIBLING, 8, EPOCH, True),  # ... in ours
        ("0/2", ME, 9, EPOCH, True),  # one key is one machine, whatever its share
    ],
)
async def test_accounts_that_count_as_own(
    tmp_path: Path, share: str, author: Identity, slot: int, epoch: int, double: bool
) -> None:
    listener = Listener(tmp_path, share=share, seconds=0)
    listener.sign(2 if share == "0/2" else 4)
    listener.hear(author, slot, epoch)
    assert await refused(listener) is double
    assert len(listener.node.events("heard_self")) == double


async def test_it_continues_listening_while_it_signs(tmp_path: Path) -> None:
    listener = Listener(tmp_path, seconds=0)
    assert not await refused(listener)
    listener.sign(2)
    assert not await refused(listener)
    listener.hear(ME, 7)
    assert await refused(listener)


async def test_a_message_under_the_own_key_ends_the_wait_with_an_error(
    tmp_path: Path, autojump_clock: object
) -> None:
    listener = Listener(tmp_path)
    async with trio.open_nursery() as nursery:
        started = trio.current_time()

        async def speak() -> None:
            await trio.sleep(3)
            listener.hear(ME, 0)

        nursery.start_soon(speak)
        assert await refused(listener)
        assert trio.current_time() - started < SECONDS


async def test_a_second_node_with_the_same_key_is_detected_through_gossip(tmp_path: Path) -> None:
    """Two machines with one key, over the network: the second detects the first, never itself."""
    hub, manifest = MemoryHub(), make_manifest()
    found: list[tuple[AdmittedRollout, bytes]] = []

    class OwnRollouts(Observer):
        """Observer that records the rollouts of the own account."""

        def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
            """Record a rollout."""
            if admitted.account == ME.account:
                found.append((admitted, message))

    mine = GossipHarness(hub, ME, manifest, tmp_path / "me", observers=[OwnRollouts()])
    friend = GossipHarness(hub, OTHER, manifest, tmp_path / "friend")
    async with trio.open_nursery() as nursery:
        for node in (mine, friend):
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        await mine.transport.connect(friend.address)
        await until(lambda: friend.knows(mine) and mine.knows(friend))
        own = await mine.publish(slot=0)
        double = ME.message(manifest, slot=1)
        await friend.transport.publish(f"{_topic(mine)}", double)
        await until(lambda: found)
        nursery.cancel_scope.cancel()
    assert [message for _, message in found] == [double]
    assert own.content_id not in {admitted.content_id for admitted, _ in found}


def _topic(node: GossipHarness) -> str:
    from sapo_protocol.topics import rollouts_topic

    return rollouts_topic(node.manifest.swarm_id)


async def test_a_second_machine_with_one_key_refuses_to_start(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    """Whole nodes: another node has stored what the key signed on the first machine, and sends it."""
    manifest, hub = manifest_of(weekdays), MemoryHub()
    friend = GossipHarness(hub, OTHER, manifest, tmp_path / "friend", clock=wall_clock)
    first = Home(tmp_path / "first", 1, manifest, policy)
    copy = replace(first, root=tmp_path / "copy", listen_seconds=60.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(friend.transport.run)
        nursery.start_soon(friend.run)
        nursery.start_soon(first.node(hub, neighbours=[friend]).run)
        await until(lambda: friend.events("admitted"))
        await first.stop()
        await until(first.data.clean_shutdown.exists)
        with pytest.raises(BaseExceptionGroup) as caught:
            await copy.node(hub, neighbours=[friend], steps=1).run()
        nursery.cancel_scope.cancel()
    told = find_sapo_error(caught.value)
    assert told is not None
    assert told.exit_code == ExitCode.KEYSTORE
    assert copy.events("published") == []
    assert len(copy.events("listening", "heard_self")) == 2
    assert not copy.data.clean_shutdown.exists()
