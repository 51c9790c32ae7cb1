"""The signing database: a slot is recorded before any content for it is signed.

A node that crashed, restarted or was restored from a backup must never put two contents into
one slot: that is equivocation, and other nodes cannot tell an accident from an attack.

The database keeps one low watermark per swarm and account, which never decreases, as in Ethereum's EIP-3076.
Several machines of one account divide the slots among themselves: machine K of N takes the slots with
remainder K modulo N, so none of them needs the others' watermarks. A machine whose share changed signs
nothing more in an epoch in which it has signed.

An auditor's approvals have a watermark as well: two roots in one turn of an epoch cost its bond, so it signs
nothing below the newest turn in which it signed, and in that turn only the same root.
"""

from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId
from sapo_verification.store import StoreSchema, open_database

MAX_MACHINES: Final = 99
"""Four keys of an account are valid at a time; a much larger number is a typing error."""

_SCHEMA = StoreSchema(
    "signing",
    """
    CREATE TABLE IF NOT EXISTS watermark (
        swarm BLOB NOT NULL, account BLOB NOT NULL, epoch INTEGER NOT NULL, next_slot INTEGER NOT NULL,
        PRIMARY KEY (swarm, account)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS slot_share (
        swarm BLOB NOT NULL, account BLOB NOT NULL, machine INTEGER NOT NULL, machines INTEGER NOT NULL,
        PRIMARY KEY (swarm, account)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS retired_node (node BLOB PRIMARY KEY) WITHOUT ROWID;
    """,
    """
    CREATE TABLE approval_mark (
        swarm BLOB NOT NULL, account BLOB NOT NULL, epoch INTEGER NOT NULL, turn INTEGER NOT NULL,
        root BLOB NOT NULL, PRIMARY KEY (swarm, account)
    ) WITHOUT ROWID;
    """,
)

_READ = """
SELECT w.swarm, w.account, w.epoch, w.next_slot, s.machine, s.machines
FROM watermark w LEFT JOIN slot_share s ON s.swarm = w.swarm AND s.account = w.account
WHERE ?1 IS NULL OR (w.swarm = ?1 AND w.account = ?2) ORDER BY w.swarm, w.account
"""
"""Marks that were stored before shares existed have none: their machine was the only one."""


@dataclass(frozen=True, slots=True)
class SlotShare:
    """The slots of one of several machines of an account: those congruent to its number."""

    machine: int = 0
    machines: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.machine < self.machines <= MAX_MACHINES:
            raise LocalProtocolError(f"there is no machine {self.machine} of {self.machines}, counted from 0")

    def __str__(self) -> str:
        return f"{self.machine}/{self.machines}"

    @classmethod
    def parse(cls, text: str) -> "SlotShare":
        """Return the share in a text such as ``0/2``.

        Raises:
            LocalProtocolError: the text is not a share.
        """
        machine, slash, machines = text.partition("/")
        if not (slash and machine.isdecimal() and machines.isdecimal() and text.isascii()):
            raise LocalProtocolError(f"{text!r} is not a share of the form K/N")
        return cls(int(machine), int(machines))

    def holds(self, slot: int) -> bool:
        """Whether the slot is this machine's."""
        return slot % self.machines == self.machine

    def meets(self, other: "SlotShare") -> bool:
        """Whether a slot can be of both shares."""
        return (self.machine - other.machine) % gcd(self.machines, other.machines) == 0

    def first_from(self, slot: int) -> int:
        """Return the lowest slot of the share that is ``slot`` or higher."""
        return slot + (self.machine - slot) % self.machines


WHOLE: Final = SlotShare()
"""The share of the only machine of an account."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Low watermark of one account in one swarm: nothing below it may be signed.

    Attributes:
        epoch: the newest epoch that was signed in; older ones are over.
        next_slot: every slot of that epoch below it may have been signed.
        share: the machine's share in that epoch.
    """

    swarm_id: SwarmId
    account: Account
    epoch: int
    next_slot: int
    share: SlotShare = WHOLE

    @property
    def height(self) -> tuple[int, int]:
        """Epoch and slot, which in this order must never decrease."""
        return self.epoch, self.next_slot


UNKNOWN_ROOT: Final = Digest(bytes(32))
"""Stands for an unknown root, or for several: nothing more is signed in their turn."""


@dataclass(frozen=True, slots=True)
class ApprovalMark:
    """Low watermark of one auditor in one swarm: it approves nothing below it, and in its turn only this
    root.

    Attributes:
        epoch: the newest epoch of which a root was approved.
        turn: the newest turn of that epoch in which a root was approved.
        root: digest of that root.
    """

    swarm_id: SwarmId
    account: Account
    epoch: int
    turn: int
    root: Digest

    @property
    def height(self) -> tuple[int, int]:
        """Epoch and turn, which in this order must never decrease."""
        return self.epoch, self.turn

    def merged(self, other: "ApprovalMark") -> "ApprovalMark":
        """Return the watermark that forbids all that one of the two forbids."""
        if self.height == other.height and self.root != other.root:
            return replace(self, root=UNKNOWN_ROOT)
        return max(self, other, key=lambda mark: mark.height)

    def allows(self, other: "ApprovalMark") -> bool:
        """Whether the approval ``other`` may follow this one."""
        again = self.height == other.height and self.root == other.root != UNKNOWN_ROOT
        return self.height < other.height or again


class SigningDatabase:
    """Watermarks of slots and approvals per swarm and account; they never decrease."""

    def __init__(self, path: Path | str) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._connection.execute("PRAGMA synchronous=FULL")  # a power failure must not undo a commit

    def take_slots(
        self,
        swarm_id: SwarmId,
        account: Account,
        epoch: int,
        count: int,
        slots_per_epoch: int,
        share: SlotShare = WHOLE,
    ) -> range:
        """Reserve and return up to ``count`` new slots of an epoch; none when the quota is used up.

        Also none for the rest of an epoch in which this database signed under another share.

        Raises:
            LocalProtocolError: a slot of a later epoch was already signed.
        """
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            mark = self.mark(swarm_id, account) or Mark(swarm_id, account, epoch=-1, next_slot=0, share=share)
            if epoch < mark.epoch:
                raise LocalProtocolError(f"epoch {epoch} is over: this node has signed in epoch {mark.epoch}")
            if epoch > mark.epoch:
                mark = Mark(swarm_id, account, epoch=epoch, next_slot=0, share=share)
            slots = _fresh(mark, count, slots_per_epoch) if mark.share == share else range(0)
            self._write(replace(mark, epoch=epoch, next_slot=slots[-1] + 1 if slots else mark.next_slot))
        return slots

    def approve(self, mark: ApprovalMark) -> bool:
        """Record an approval before it is signed; return False if it must not be signed."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            known = self.approval_mark(mark.swarm_id, mark.account)
            if known is not None and not known.allows(mark):
                return False
            self._write_approval(mark)
        return True

    def approval_mark(self, swarm_id: SwarmId, account: Account) -> ApprovalMark | None:
        """Return the mark of an auditor in a swarm, or None if it never approved anything."""
        marks = (
            mark for mark in self.approval_marks() if (mark.swarm_id, mark.account) == (swarm_id, account)
        )
        return next(marks, None)

    def approval_marks(self) -> tuple[ApprovalMark, ...]:
        """Return every auditor's mark, by swarm and account."""
        rows = self._connection.execute(
            "SELECT swarm, account, epoch, turn, root FROM approval_mark ORDER BY swarm, account"
        )
        return tuple(
            ApprovalMark(SwarmId(swarm), Account(account), epoch, turn, Digest(root))
            for swarm, account, epoch, turn, root in rows.fetchall()
        )

    def retire(self, node: NodeId) -> None:
        """Record that a node key is retired: it never signs again with this database."""
        self._connection.execute("INSERT OR IGNORE INTO retired_node VALUES (?)", (node,))

    def is_retired(self, node: NodeId) -> bool:
        """Whether a node key is retired."""
        row = self._connection.execute("SELECT 1 FROM retired_node WHERE node = ?", (node,)).fetchone()
        return row is not None

    def mark(self, swarm_id: SwarmId, account: Account) -> Mark | None:
        """Return the mark of an account in a swarm, or None if it never signed."""
        marks = self._marks(swarm_id, account)
        return marks[0] if marks else None

    def marks(self) -> tuple[Mark, ...]:
        """Return every mark, by swarm and account."""
        return self._marks(None, None)

    def raise_marks(self, marks: tuple[Mark, ...], approvals: tuple[ApprovalMark, ...] = ()) -> int:
        """Raise the stored marks to these, all or none; return how many changed.

        Approvals are merged: afterwards nothing may be signed that either history forbids.

        Raises:
            LocalProtocolError: one is below the stored mark, or is of the same epoch but another share.
        """
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            changed = sum(self._raise(mark) for mark in marks)
            return changed + sum(self._merge(mark) for mark in approvals)

    def _merge(self, mark: ApprovalMark) -> bool:
        known = self.approval_mark(mark.swarm_id, mark.account)
        merged = mark if known is None else known.merged(mark)
        self._write_approval(merged)
        return known != merged

    def _write_approval(self, mark: ApprovalMark) -> None:
        row = (mark.swarm_id, mark.account, mark.epoch, mark.turn, mark.root)
        self._connection.execute("INSERT OR REPLACE INTO approval_mark VALUES (?, ?, ?, ?, ?)", row)

    def _raise(self, mark: Mark) -> bool:
        known = self.mark(mark.swarm_id, mark.account)
        if known is not None and mark.height < known.height:
            raise LocalProtocolError(
                f"account {mark.account} signed up to slot {known.next_slot} of epoch {known.epoch} here,"
                f" beyond slot {mark.next_slot} of epoch {mark.epoch}"
            )
        if known is not None and mark.epoch == known.epoch and mark.share != known.share:
            raise LocalProtocolError(
                f"account {mark.account} signed as machine {known.share} in epoch {known.epoch} here,"
                f" not as {mark.share}"
            )
        self._write(mark)
        return known != mark

    def _marks(self, swarm_id: SwarmId | None, account: Account | None) -> tuple[Mark, ...]:
        rows = self._connection.execute(_READ, (swarm_id, account))
        return tuple(
            Mark(
                swarm_id=SwarmId(swarm),
                account=Account(account),
                epoch=epoch,
                next_slot=slot,
                share=SlotShare(machine or 0, machines or 1),
            )
            for swarm, account, epoch, slot, machine, machines in rows.fetchall()
        )

    def _write(self, mark: Mark) -> None:
        key = (mark.swarm_id, mark.account)
        self._connection.execute("INSERT OR REPLACE INTO watermark VALUES (?, ?, ?, ?)", (*key, *mark.height))
        self._connection.execute(
            "INSERT OR REPLACE INTO slot_share VALUES (?, ?, ?, ?)",
            (*key, mark.share.machine, mark.share.machines),
        )


def _fresh(mark: Mark, count: int, slots_per_epoch: int) -> range:
    """Return up to ``count`` next slots above a mark, of its share and below the quota."""
    first, step = mark.share.first_from(mark.next_slot), mark.share.machines
    return range(first, max(first, min(first + count * step, slots_per_epoch)), step)
