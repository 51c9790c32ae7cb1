"""What one data directory signed is known to every other one with the same identity on the machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import Home, manifest_of
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_manifest

from sapo_client.errors import ExitCode, SapoError
from sapo_client.machine_marks import MachineMarks, SignedMark
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.suite import Suite
from sapo_verification.signing.database import SigningDatabase, SlotShare

ME, SIBLING = Identity(1), Identity(1, key=1)


@dataclass
class Machine:
    """A machine with data directories that are used one after the other, without a peer."""

    root: Path

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    def start(self, name: str, who: Identity = ME, share: str = "0/1", epoch: int = EPOCH) -> Started:
        """Start a node in a data directory, in an epoch."""
        return Started(self, name, who, share, epoch)


class Started:
    """The part of a node that decides whether it may sign, and its signing database."""

    def __init__(self, machine: Machine, name: str, who: Identity, share: str, epoch: int) -> None:
        self.machine, self.who, self.epoch, self.share = machine, who, epoch, SlotShare.parse(share)
        self.manifest = make_manifest()
        self.folder = machine.root / name
        self.folder.mkdir(exist_ok=True)
        node = GossipHarness(MemoryHub(), who, self.manifest, self.folder)
        self.signing = SigningDatabase(self.folder / "signing.sqlite")
        self.marks = MachineMarks(machine.locks, account=who.account, node=who.node, data_dir=self.folder)
        late_seconds = (epoch - EPOCH) * EPOCH_SECONDS
        self.doppelganger = Doppelganger(
            DoppelgangerParts(
                manifest=self.manifest,
                node=who.node,
                account=who.account,
                signing=self.signing,
                share=self.share,
                transport=node.transport,
                telemetry=node.telemetry,
                clock=lambda: node.now() + late_seconds,
                seconds=0,
                stopped_clean=False,
                data_dir=self.folder,
                machine=self.marks,
            )
        )

    def sign(self, slots: int) -> None:
        """Take slots as a round does."""
        self.signing.take_slots(
            self.manifest.swarm_id,
            self.who.account,
            epoch=self.epoch,
            count=slots,
            slots_per_epoch=32,
            share=self.share,
        )
        self.doppelganger.slots_taken()

    async def refusal(self) -> SapoError | None:
        """Return why the node may not sign; None if it may."""
        try:
            await self.doppelganger.require_alone(trio.Event())
        except SapoError as error:
            return error
        return None

    async def may_sign(self) -> bool:
        """Whether the node may sign."""
        return await self.refusal() is None


async def test_a_second_directory_signs_nothing_before_the_next_epoch(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = machine.start("first")
    assert await first.may_sign()
    first.sign(4)
    assert await first.may_sign()
    refusal = await machine.start("second").refusal()
    assert refusal is not None
    assert refusal.exit_code == ExitCode.KEYSTORE
    told = f"{refusal.text}; {refusal.hint}"
    assert "\n" not in told
    for part in (
        f"in epoch {EPOCH} with data directory {first.folder}",
        f"sapo keys signing export FILE --data-dir {first.folder}",
        f"sapo keys signing import FILE --data-dir {tmp_path / 'second'}",
        "or start this node at 20",
    ):
        assert part in told
    second = machine.start("second", epoch=EPOCH + 1)
    assert await second.may_sign()
    second.sign(1)
    assert not await machine.start("first", epoch=EPOCH + 1).may_sign(), "now it is the other way round"


async def test_the_directory_that_signed_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start("first").sign(4)
    assert await machine.start("first").may_sign()


async def test_a_moved_directory_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start("first").sign(4)
    (tmp_path / "first").rename(tmp_path / "moved")
    assert await machine.start("moved").may_sign()


async def test_a_directory_with_an_imported_history_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first, second = machine.start("first"), machine.start("second")
    first.sign(4)
    second.signing.raise_marks(first.signing.marks())
    assert await second.may_sign()
    second.sign(1)
    assert not await first.may_sign(), "it does not know the second one's last slot"


@pytest.mark.parametrize("place", ["first", "elsewhere"])
async def test_an_older_copy_does_not_sign(tmp_path: Path, place: str) -> None:
    """A backup that is restored in place, or a volume of another container with the same path."""
    machine = Machine(tmp_path)
    machine.start("first").sign(2)
    shutil.copytree(tmp_path / "first", tmp_path / "backup")
    machine.start("first").sign(2)
    shutil.rmtree(tmp_path / "first")
    (tmp_path / "backup").rename(tmp_path / place)
    refusal = await machine.start(place).refusal()
    assert refusal is not None
    assert refusal.hint.startswith("start this node at 20"), "there is no history to bring"
    assert await machine.start(place, epoch=EPOCH + 1).may_sign()


async def test_an_epoch_signed_ahead_is_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start("first", epoch=EPOCH + 2).sign(1)
    allowed = [await machine.start("second", epoch=EPOCH + later).may_sign() for later in range(4)]
    assert allowed == [False, False, False, True]


@pytest.mark.parametrize(
    ("who", "first", "second", "allowed"),
    [
        (SIBLING, "0/1", "0/1", False),  # another key of the account, undivided
        (SIBLING, "0/2", "1/2", True),  # ... with its own part of the slots
        (SIBLING, "0/2", "0/4", False),  # ... with a part of ours
        (SIBLING, "0/2", "1/4", True),
        (ME, "0/2", "1/2", False),  # one key is one machine, whatever its share
        (Identity(2), "0/1", "0/1", True),
    ],
)
async def test_keys_and_shares_of_one_machine(
    tmp_path: Path, who: Identity, first: str, second: str, allowed: bool
) -> None:
    machine = Machine(tmp_path)
    machine.start("first", share=first).sign(2)
    assert await machine.start("second", who, share=second).may_sign() is allowed


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"marks": {"ab": 1}}', b"\xff" * 2_000_000])
async def test_a_missing_or_damaged_file_is_written_again(tmp_path: Path, content: bytes | None) -> None:
    machine = Machine(tmp_path)
    first = machine.start("first")
    first.sign(4)
    [file] = machine.locks.iterdir()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert await machine.start("second").may_sign(), "as on another machine, only peers can tell"
    first.sign(1)
    assert not await machine.start("second").may_sign()


async def test_a_folder_that_takes_no_files_ends_no_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.locks.write_text("no folder")
    first = machine.start("first")
    first.sign(4)
    assert await first.may_sign()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "free some space, or correct the permissions" in warnings[-1]


def test_marks_of_several_swarms_are_kept(tmp_path: Path) -> None:
    signing = SigningDatabase(":memory:")
    marks = MachineMarks(tmp_path, account=ME.account, node=ME.node, data_dir=tmp_path / "first")
    swarms = [make_manifest(genesis_seconds=seconds).swarm_id for seconds in (1, 2)]
    for swarm in swarms:
        signing.take_slots(swarm, ME.account, epoch=3, count=2, slots_per_epoch=9)
        mark = signing.mark(swarm, ME.account)
        assert mark is not None
        marks.record(mark)
    known = [marks.above(swarm, None, SlotShare()) for swarm in swarms]
    assert known == 2 * [
        SignedMark(epoch=3, next_slot=2, machine=0, machines=1, data_dir=str(tmp_path / "first"))
    ]


async def test_whole_nodes_without_a_peer_sign_no_slot_twice(
    policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    manifest, locks = manifest_of(weekdays), tmp_path / "locks"
    first = Home(tmp_path / "first", 1, manifest, policy)
    second = replace(first, root=tmp_path / "second")
    await first.node(MemoryHub(), steps=1, locks=locks).run()
    before = len(first.events("published"))
    with pytest.raises(BaseExceptionGroup) as caught:
        await second.node(MemoryHub(), steps=1, locks=locks).run()
    told = find_sapo_error(caught.value)
    assert told is not None
    assert told.exit_code == ExitCode.KEYSTORE
    assert str(first.data.root) in told.text
    assert second.events("published") == []
    await first.node(MemoryHub(), steps=1, locks=locks).run()
    published = [(event["epoch"], event["slot"]) for event in first.events("published")]
    assert len(published) == len(set(published)) > before > 0
