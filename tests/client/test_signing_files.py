"""Moving a signing history: complete, only upwards, and never while a node runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec

import pytest

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir
from sapo_client.signing_files import export_signing, import_signing
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark, Mark, SigningDatabase
from sapo_verification.signing.interchange import SigningHistory

P = ParamSpec("P")

SWARM, ALICE = SwarmId(b"\x01" * 32), Account(b"\x0a" * 20)


def used(root: Path, slots: int = 4) -> DataDir:
    data = DataDir(root).create()
    SigningDatabase(data.database).take_slots(SWARM, ALICE, 5, slots, 100)
    data.clean_shutdown.touch()
    return data


def refusal(call: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> SapoError:
    with pytest.raises(SapoError) as caught:
        call(*arguments, **named)
    return caught.value


def test_a_history_moves_to_another_machine(tmp_path: Path) -> None:
    old, new, file = used(tmp_path / "old"), DataDir(tmp_path / "new"), tmp_path / "history.json"
    history = SigningHistory((Mark(SWARM, ALICE, 5, 4),))
    assert export_signing(old, file) == history
    assert import_signing(new, file) == (history, 1)
    assert SigningDatabase(new.database).take_slots(SWARM, ALICE, 5, 2, 100) == range(4, 6)
    assert not old.clean_shutdown.exists(), "from now on the old machine listens before it signs"


def test_a_moved_auditor_signs_no_second_root_in_a_turn(tmp_path: Path) -> None:
    """Two roots in one turn cost the bond, whichever machine signed them."""
    old, new, file = used(tmp_path / "old"), DataDir(tmp_path / "new"), tmp_path / "history.json"
    signed = ApprovalMark(SWARM, ALICE, epoch=4, turn=2, root=Digest(b"\x07" * 32))
    other = replace(signed, root=Digest(b"\x08" * 32))
    assert SigningDatabase(old.database).approve(signed)
    assert export_signing(old, file).approvals == (signed,)
    import_signing(new, file)
    moved = SigningDatabase(new.database)
    assert not moved.approve(other)
    assert not moved.approve(replace(other, turn=1))
    assert not moved.approve(replace(other, epoch=3, turn=9))
    assert moved.approve(signed)  # it may have died before the signature went out
    assert moved.approve(replace(other, turn=3))


def test_approvals_of_two_machines_are_merged(tmp_path: Path) -> None:
    """Whatever one of the two histories forbids is forbidden."""
    mark = ApprovalMark(SWARM, ALICE, epoch=4, turn=2, root=Digest(b"\x07" * 32))
    other = replace(mark, root=Digest(b"\x08" * 32))
    for known, imported, merged in (
        (replace(mark, turn=1), mark, mark),
        (mark, replace(mark, turn=1), mark),
        (mark, mark, mark),
        (mark, other, replace(mark, root=UNKNOWN_ROOT)),
    ):
        database = SigningDatabase(":memory:")
        database.approve(known)
        database.raise_marks((), (imported,))
        assert database.approval_marks() == (merged,)


def test_a_mark_is_never_lowered(tmp_path: Path) -> None:
    old, new, file = used(tmp_path / "old", 4), used(tmp_path / "new", 9), tmp_path / "history.json"
    export_signing(old, file)
    error = refusal(import_signing, new, file)
    assert (error.exit_code, "nothing was imported" in error.text) == (ExitCode.KEYSTORE, True)
    assert SigningDatabase(new.database).marks() == (Mark(SWARM, ALICE, 5, 9),)


def test_export_and_import_are_refused_while_a_node_runs(tmp_path: Path) -> None:
    data, file = used(tmp_path / "data"), tmp_path / "history.json"
    export_signing(data, file)
    with locks.lock(data.lock, what="the node"):
        for call, path in ((export_signing, tmp_path / "other.json"), (import_signing, file)):
            error = refusal(call, data, path)
            assert "already in use" in error.text
    assert not (tmp_path / "other.json").exists()


def test_an_invalid_history_is_refused(tmp_path: Path) -> None:
    data = used(tmp_path / "data")
    for name, content in (("text", b"hello"), ("bytes", b"\xff\xfe"), ("large", b" " * (1024 * 1024 + 1))):
        file = tmp_path / name
        file.write_bytes(content)
        assert refusal(import_signing, data, file).exit_code == ExitCode.KEYSTORE
    assert refusal(import_signing, data, tmp_path / "missing").exit_code == ExitCode.KEYSTORE


def test_an_export_overwrites_nothing_and_needs_a_history(tmp_path: Path) -> None:
    data, file = used(tmp_path / "data"), tmp_path / "history.json"
    file.write_text("mine")
    assert refusal(export_signing, data, file).exit_code == ExitCode.KEYSTORE
    assert file.read_text() == "mine"
    assert refusal(export_signing, DataDir(tmp_path / "none"), tmp_path / "x").exit_code == ExitCode.DATA
