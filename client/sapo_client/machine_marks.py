"""Last signed slots and turns of the identities of this machine, over all data directories.

The signing database is part of a data directory, so a second directory, or an older copy restored in place of
the first, knows nothing of what the first one signed. Beside the lock of each identity, a file repeats the
newest watermark of each swarm and names the data directory. It is written before anything is signed, by the
process that holds the identity's lock. A second file does the same for an auditor's approvals.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sapo_client.atomic_files import write_atomically
from sapo_client.paths import PRIVATE_DIRECTORY_MODE
from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId
from sapo_verification.signing.database import MAX_MACHINES, ApprovalMark, Mark, SlotShare

_LOG = logging.getLogger(__name__)

_SUFFIX: Final = ".signed.json"
_APPROVALS_SUFFIX: Final = ".approved.json"

MAX_FILE_BYTES: Final = 1024 * 1024
"""Some thousand swarms; a larger file is not read."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SignedMark(_Model):
    """The newest watermark of one node key in one swarm.

    Attributes:
        epoch: the newest epoch in which it signed.
        next_slot: every slot of that epoch below it may have been signed.
        machine: with ``machines``, the share of the slots.
        data_dir: absolute path of the data directory that holds the signing database.
    """

    epoch: int = Field(ge=0)
    next_slot: int = Field(ge=0)
    machine: int = Field(ge=0, lt=MAX_MACHINES)
    machines: int = Field(ge=1, le=MAX_MACHINES)
    data_dir: str

    @property
    def height(self) -> tuple[int, int]:
        """Epoch and slot, as in the signing database."""
        return self.epoch, self.next_slot

    def meets(self, share: SlotShare) -> bool:
        """Whether a slot can be of both shares."""
        return SlotShare(self.machine, self.machines).meets(share)


class ApprovedMark(_Model):
    """The newest approval that one node key of an auditor signed in one swarm.

    Attributes:
        epoch: the newest epoch of which a root was approved.
        turn: the newest turn of that epoch in which a root was approved.
        root: digest of that root, in hexadecimal.
    """

    epoch: int = Field(ge=0)
    turn: int = Field(ge=0)
    root: str = Field(pattern="^[0-9a-f]{64}$")


class _MarksFile(_Model):
    """Content of a file: marks by swarm id in hexadecimal."""

    marks: dict[str, SignedMark]


class _ApprovalsFile(_Model):
    """Content of a file: approvals by swarm id in hexadecimal."""

    approvals: dict[str, ApprovedMark]


F = TypeVar("F", bound=_Model)


class MachineMarks:
    """Watermarks of one account on this machine, one file per node key.

    Only a process that holds the lock of the node key may record.

    Args:
        folder: the folder of the identities' locks.
        data_dir: data directory of this process.
    """

    def __init__(self, folder: Path, *, account: Account, node: NodeId, data_dir: Path) -> None:
        self._folder = folder
        self._own = folder / f"{account.hex()}.{node.hex()}{_SUFFIX}"
        self._pattern = f"{account.hex()}.*{_SUFFIX}"
        self._data_dir = str(data_dir.absolute())
        self._recorded: Mark | None = None

    def above(self, swarm: SwarmId, mark: Mark | None, share: SlotShare) -> SignedMark | None:
        """Return the highest watermark above the data directory's own one that concerns its slots, if any.

        Those of this node key always do; those of other keys of the account do if the shares have a slot in
        common.

        Args:
            mark: the watermark of the data directory; None if it never signed in this swarm.
            share: the share under which it is to sign.
        """
        height = (-1, 0) if mark is None else mark.height
        above = [
            known
            for path in sorted(self._folder.glob(self._pattern))
            if (known := _marks_in(path).get(swarm.hex())) is not None
            and known.height > height
            and (path == self._own or known.meets(share))
        ]
        return max(above, key=lambda known: known.height, default=None)

    def record(self, mark: Mark) -> None:
        """Record the data directory's watermark, durably; does nothing if it is recorded already.

        If the file cannot be written a warning is logged: the signing database holds the mark as well.
        """
        if mark == self._recorded:
            return
        signed = SignedMark(
            epoch=mark.epoch,
            next_slot=mark.next_slot,
            machine=mark.share.machine,
            machines=mark.share.machines,
            data_dir=self._data_dir,
        )
        try:
            marks = {**_marks_in(self._own), mark.swarm_id.hex(): signed}
            _write(self._own, _MarksFile(marks=marks))
        except OSError as error:
            _warn(self._own, error)
            return
        self._recorded = mark


class MachineApprovals:
    """Approvals of one auditor on this machine, one file per node key.

    Only a process that holds the lock of the node key may approve.

    Args:
        folder: the folder of the identities' locks.
    """

    def __init__(self, folder: Path, *, account: Account, node: NodeId) -> None:
        self._folder = folder
        self._account = account
        self._own = folder / f"{account.hex()}.{node.hex()}{_APPROVALS_SUFFIX}"
        self._pattern = f"{account.hex()}.*{_APPROVALS_SUFFIX}"

    def approve(self, mark: ApprovalMark) -> bool:
        """Record an approval before it is signed, durably; return False if it must not be signed.

        It is recorded before those of other node keys are read: of two processes that do this at the same
        time at least one reads what the other has recorded. If the file cannot be written a warning is
        logged: the signing database holds the mark as well.
        """
        approvals, swarm = _approvals_in(self._own), mark.swarm_id.hex()
        if not self._allows(approvals.get(swarm), mark):
            return False
        own = ApprovedMark(epoch=mark.epoch, turn=mark.turn, root=mark.root.hex())
        try:
            _write(self._own, _ApprovalsFile(approvals={**approvals, swarm: own}))
        except OSError as error:
            _warn(self._own, error)
        others = (path for path in sorted(self._folder.glob(self._pattern)) if path != self._own)
        return all(self._allows(_approvals_in(path).get(swarm), mark) for path in others)

    def _allows(self, known: ApprovedMark | None, mark: ApprovalMark) -> bool:
        if known is None:
            return True
        root = Digest(bytes.fromhex(known.root))
        return ApprovalMark(mark.swarm_id, self._account, known.epoch, known.turn, root).allows(mark)


def _marks_in(path: Path) -> dict[str, SignedMark]:
    found = _read(path, _MarksFile)
    return found.marks if found is not None else {}


def _approvals_in(path: Path) -> dict[str, ApprovedMark]:
    found = _read(path, _ApprovalsFile)
    return found.approvals if found is not None else {}


def _read(path: Path, model: type[F]) -> F | None:
    """Return the content of a file; None if it is missing or damaged."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        return model.model_validate_json(content)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        _LOG.warning("cannot read what was signed on this machine, from %s: %s", path, error)
        return None


def _write(path: Path, content: _Model) -> None:
    """Replace a file in one step; durable on return."""
    path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    write_atomically(path, content.model_dump_json() + "\n", durable=True)


def _warn(path: Path, error: OSError) -> None:
    _LOG.warning(
        "cannot write %s (%s): another data directory with this identity will not learn what was"
        " signed here; free some space, or correct the permissions of its folder",
        path,
        error.strerror,
    )
