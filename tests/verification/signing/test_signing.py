"""The signing database: after crashes and restarts no slot is assigned twice."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_verification.signing.database import ApprovalMark, Mark, SigningDatabase, SlotShare
from sapo_verification.signing.interchange import SigningHistory

SWARM, OTHER = SwarmId(b"\x01" * 32), SwarmId(b"\x02" * 32)
ALICE, BOB = Account(b"\x0a" * 20), Account(b"\x0b" * 20)


def test_slots_follow_each_other_up_to_the_quota(tmp_path: Path) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    taken = [database.take_slots(SWARM, ALICE, 5, 3, slots_per_epoch=8) for _ in range(4)]
    assert taken == [range(0, 3), range(3, 6), range(6, 8), range(8, 8)]
    assert database.take_slots(SWARM, ALICE, 6, 3, slots_per_epoch=8) == range(0, 3)


def test_accounts_and_swarms_have_separate_slots(tmp_path: Path) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    taken = [
        database.take_slots(s, a, epoch=5, count=2, slots_per_epoch=8)
        for s in (SWARM, OTHER)
        for a in (ALICE, BOB)
    ]
    assert taken == [range(0, 2)] * 4


def test_slots_of_an_older_epoch_are_refused(tmp_path: Path) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8)
    with pytest.raises(LocalProtocolError):
        database.take_slots(SWARM, ALICE, epoch=4, count=1, slots_per_epoch=8)
    assert database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8) == range(2, 4), (
        "the refusal left no lock behind"
    )


@pytest.mark.parametrize(("count", "quota"), [(2, 1), (0, 8), (-3, 8), (2, 0)])
def test_no_argument_can_lower_the_mark(tmp_path: Path, count: int, quota: int) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    database.take_slots(SWARM, ALICE, epoch=5, count=4, slots_per_epoch=8)
    assert not database.take_slots(SWARM, ALICE, epoch=5, count=count, slots_per_epoch=quota)
    assert database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8) == range(4, 6)


def test_the_mark_is_written_before_a_slot_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "signing.sqlite"
    SigningDatabase(path).take_slots(SWARM, ALICE, epoch=5, count=3, slots_per_epoch=8)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader:
        assert reader.execute("SELECT * FROM watermark").fetchall() == [(SWARM, ALICE, 5, 3)]


def test_the_mark_is_synchronised_to_the_disk(tmp_path: Path) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    assert database._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"


shares = st.integers(1, 9).flatmap(lambda n: st.builds(SlotShare, st.integers(0, n - 1), st.just(n)))


@given(shares, st.integers(0, 50))
def test_a_share_determines_its_slots(share: SlotShare, slot: int) -> None:
    assert SlotShare.parse(str(share)) == share
    machines = range(share.machines)
    assert [n for n in machines if SlotShare(n, share.machines).holds(slot)] == [slot % share.machines]
    first = share.first_from(slot)
    assert first >= slot
    assert [s for s in range(slot, first + 1) if share.holds(s)] == [first]


@pytest.mark.parametrize(
    "text", ["2/2", "0/0", "-1/2", "1", "1/", "/2", "a/b", "0/100", " 0/1", "٠/١", "0/1/2", ""]
)
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        SlotShare.parse(text)


@given(st.integers(1, 5), st.integers(0, 40), st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_machines_of_one_account_have_disjoint_slots(machines: int, quota: int, counts: list[int]) -> None:
    taken: list[int] = []
    for machine in range(machines):
        database = SigningDatabase(":memory:")
        for count in counts * 10:
            slots = database.take_slots(
                SWARM, ALICE, epoch=5, count=count, slots_per_epoch=quota, share=SlotShare(machine, machines)
            )
            assert len(slots) <= count
            taken += slots
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(range(quota))
    if sum(counts) * 10 >= quota:
        assert sorted(taken) == list(range(quota)), "nothing of the quota is lost"


def test_after_a_change_of_share_no_slot_of_its_epoch_is_signed(tmp_path: Path) -> None:
    database = SigningDatabase(tmp_path / "signing.sqlite")
    assert list(
        database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8, share=SlotShare(0, 2))
    ) == [0, 2]
    assert (
        list(database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8, share=SlotShare(1, 2)))
        == []
    )
    assert list(
        database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8, share=SlotShare(0, 2))
    ) == [4, 6]
    assert list(
        database.take_slots(SWARM, ALICE, epoch=6, count=2, slots_per_epoch=8, share=SlotShare(1, 2))
    ) == [1, 3]
    assert database.mark(SWARM, ALICE) == Mark(
        swarm_id=SWARM, account=ALICE, epoch=6, next_slot=4, share=SlotShare(1, 2)
    )


def test_a_database_without_shares_belongs_to_a_single_machine(tmp_path: Path) -> None:
    path = tmp_path / "signing.sqlite"
    with sqlite3.connect(path) as old:
        old.execute(
            "CREATE TABLE watermark (swarm BLOB, account BLOB, epoch INTEGER, next_slot INTEGER,"
            " PRIMARY KEY (swarm, account)) WITHOUT ROWID"
        )
        old.execute("INSERT INTO watermark VALUES (?, ?, 5, 3)", (SWARM, ALICE))
    database = SigningDatabase(path)
    assert database.marks() == (Mark(SWARM, ALICE, 5, 3),)
    assert database.take_slots(SWARM, ALICE, epoch=5, count=2, slots_per_epoch=8) == range(3, 5)


HERE = Mark(SWARM, ALICE, 5, 4)


@pytest.mark.parametrize(
    ("mark", "outcome"),
    [
        (HERE, 0),
        (replace(HERE, next_slot=5), 1),
        (replace(HERE, epoch=6, next_slot=0), 1),
        (replace(HERE, epoch=6, next_slot=0, share=SlotShare(1, 2)), 1),
        (replace(HERE, account=BOB, epoch=0), 1),
        (replace(HERE, swarm_id=OTHER, epoch=0), 1),
        (replace(HERE, next_slot=3), "up to slot 4 of epoch 5"),
        (replace(HERE, epoch=4, next_slot=9), "up to slot 4 of epoch 5"),
        (replace(HERE, next_slot=9, share=SlotShare(1, 2)), "as machine 0/1"),
    ],
)
def test_imported_marks_only_rise(mark: Mark, outcome: int | str) -> None:
    database = SigningDatabase(":memory:")
    database.take_slots(SWARM, ALICE, epoch=5, count=4, slots_per_epoch=8)
    marks = (Mark(OTHER, BOB, 9, 9), mark)
    if isinstance(outcome, int):
        assert database.raise_marks(marks) == 1 + outcome
        assert set(marks) <= set(database.marks())
    else:
        with pytest.raises(LocalProtocolError, match=outcome):
            database.raise_marks(marks)
        assert database.marks() == (HERE,), "all of it or nothing"


class SigningMachine(RuleBasedStateMachine):
    """Processes that open and close one file, some of them at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.number = 0
        self.handed_out: list[tuple[Account, int, int]] = []
        self.approved: dict[tuple[Account, int, int], set[Digest]] = {}
        self.newest_epoch = {ALICE: -1, BOB: -1}

    @initialize()
    def open_first(self) -> None:
        self.processes = [self._open()]

    @rule()
    def open_another(self) -> None:
        self.processes.append(self._open())

    @rule()
    def crash(self) -> None:
        """End the process between two statements, without closing anything."""
        self.processes = [self._open()]

    @rule()
    def crash_inside_a_transaction(self) -> None:
        connection = self.processes.pop()._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE watermark SET next_slot = 0")
        connection.close()
        self.processes.append(self._open())

    @rule(
        account=st.sampled_from([ALICE, BOB]),
        epoch=st.integers(0, 4),
        count=st.integers(-2, 5),
        quota=st.integers(0, 9),
        which=st.integers(0, 9),
    )
    def take(self, account: Account, epoch: int, count: int, quota: int, which: int) -> None:
        process = self.processes[which % len(self.processes)]
        if epoch < self.newest_epoch[account]:
            with pytest.raises(LocalProtocolError):
                process.take_slots(SWARM, account, epoch=epoch, count=count, slots_per_epoch=quota)
            return
        slots = process.take_slots(SWARM, account, epoch=epoch, count=count, slots_per_epoch=quota)
        assert len(slots) <= max(0, count)
        assert all(slot < quota for slot in slots)
        self.newest_epoch[account] = epoch
        self.handed_out += [(account, epoch, slot) for slot in slots]

    @rule(which=st.integers(0, 9))
    def move_to_a_new_machine(self, which: int) -> None:
        """Move the history to an empty database on another machine; the old one is not started again."""
        process = self.processes[which % len(self.processes)]
        written = SigningHistory(process.marks(), process.approval_marks()).to_json()
        moved = SigningHistory.from_json(written)
        for process in self.processes:
            process._connection.close()
        self.number += 1
        self.processes = [self._open()]
        self.processes[0].raise_marks(moved.marks, moved.approvals)

    @rule(
        account=st.sampled_from([ALICE, BOB]),
        epoch=st.integers(0, 3),
        turn=st.integers(0, 2),
        root=st.integers(1, 3),
        which=st.integers(0, 9),
    )
    def approve(self, account: Account, epoch: int, turn: int, root: int, which: int) -> None:
        process = self.processes[which % len(self.processes)]
        mark = ApprovalMark(SWARM, account, epoch, turn, Digest(bytes([root]) * 32))
        if process.approve(mark):
            self.approved.setdefault((account, epoch, turn), set()).add(mark.root)

    @invariant()
    def no_slot_is_handed_out_twice(self) -> None:
        assert len(set(self.handed_out)) == len(self.handed_out)

    @invariant()
    def no_two_roots_are_approved_in_one_turn(self) -> None:
        assert all(len(roots) == 1 for roots in self.approved.values())

    def teardown(self) -> None:
        for process in self.processes:
            process._connection.close()
        self.folder.cleanup()

    def _open(self) -> SigningDatabase:
        return SigningDatabase(Path(self.folder.name) / f"signing-{self.number}.sqlite")


TestSigningMachine = SigningMachine.TestCase
TestSigningMachine.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=20)
