"""An auditor whose database was damaged does not sign a second root in a turn: that would cost its bond."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.swarm import Identity, make_manifest

from sapo_client.account.repair import repair
from sapo_client.observe.events import EventLog
from sapo_client.paths import DataDir
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.signing.database import ApprovalMark, SigningDatabase

PRESENT = 9
AUDITOR, OTHER = Identity(1), Identity(2)


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """A directory whose auditor has approved a root, and whose database is damaged since."""
    data = DataDir(tmp_path / "node")
    data.create()
    data.manifest.write_text(manifest_to_json(make_manifest()))
    with closing(EventLog(data.events)) as events:
        events.write("node_started", account=AUDITOR.account)
    assert SigningDatabase(data.database).approve(mark_of(PRESENT - 1, 1, b"\x01"))
    for ending in ("-wal", "-shm"):
        data.database.with_name(data.database.name + ending).unlink(missing_ok=True)
    data.database.write_bytes(b"not a database" * 1000)
    return data


def mark_of(epoch: int, turn: int, root: bytes, auditor: Identity = AUDITOR) -> ApprovalMark:
    return ApprovalMark(make_manifest().swarm_id, auditor.account, epoch, turn, Digest(root * Digest.SIZE))


def test_nothing_is_approved_up_to_the_present_epoch(data: DataDir) -> None:
    now = epoch_start_seconds(make_manifest(), PRESENT) + 1
    [file] = repair(data, lambda: now)
    assert (file.state, file.complete, file.signs_from_epoch) == ("replaced", False, PRESENT + 1)
    signing = SigningDatabase(data.database)
    signed = mark_of(PRESENT - 1, 1, b"\x01")
    refused = (replace(signed, root=Digest(b"\x02" * 32)), signed, replace(signed, turn=2**32 - 1))
    assert [signing.approve(mark) for mark in refused] == [False] * 3
    assert not signing.approve(mark_of(PRESENT, 2**32 - 1, b"\x02"))
    assert signing.approve(mark_of(PRESENT + 1, 0, b"\x02"))
    assert signing.approve(mark_of(PRESENT - 1, 0, b"\x02", OTHER)), "of other accounts nothing is known"


def test_an_intact_database_still_approves(data: DataDir) -> None:
    data.database.unlink()
    assert SigningDatabase(data.database).approve(mark_of(PRESENT - 1, 1, b"\x01"))
    [file] = repair(data, lambda: epoch_start_seconds(make_manifest(), PRESENT) + 1.0)
    assert file.state == "in order"
    assert SigningDatabase(data.database).approve(mark_of(PRESENT - 1, 2, b"\x02"))
