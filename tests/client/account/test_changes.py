"""`sapo swarm change`: one file among the auditors, from the draft to the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.auditor_harness import AUDITORS, WORKERS, Funded, World, agree, refuse
from support.weekday_policy import FAMILY

from sapo_client import keystore
from sapo_client.account.changes import ChangeDraft, announce, propose, show, sign
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import SapoError
from sapo_client.ledger.records import Announcement
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.paths import DataDir
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.auditors import Replacement

NOW = 100
"""The epoch of the tests' chain."""

A, B, C = AUDITORS
STRANGER = WORKERS[0]


class Desk:
    """A swarm of three auditors of whom two agree, and where each of them types its commands."""

    def __init__(self, root: Path, suite: Suite) -> None:
        self.root = root
        self.world = World.create(root)
        self.manifest: Manifest = self.world.contracts.manifest(suite=suite)
        self.file = root / "change.json"

    def config(self, who: Funded) -> Config:
        data = DataDir(self.root / f"desk-{who.number}").create()
        key = data.root / "key.json"
        if not key.exists():
            data.manifest.write_text(manifest_to_json(self.manifest), encoding="utf-8")
            keystore.create(key, None, node_seed=who.seed, account_key=who.secret)
        return Config(
            identity=str(key), data_dir=data.root, ledger=LedgerConfig(rpc_urls=(self.world.chain.url,))
        )

    def announced(self) -> tuple[Announcement, ...]:
        return self.world.contracts.ledger.successions()


@pytest.fixture
def desk(tmp_path: Path, weekdays: Suite) -> Iterator[Desk]:
    created = Desk(tmp_path, weekdays)
    yield created
    created.world.chain.close()


def signers(found: dict[str, Any]) -> list[str]:
    return list(found["signed by"])


def test_a_quorum_announces_other_terms(desk: Desk) -> None:
    draft = ChangeDraft(families=((FAMILY, "nano-2"),), slots_per_epoch=64, epoch=NOW + 20)
    drafted = propose(desk.config(A), desk.file, draft, agree)
    assert signers(drafted) == [str(A.account)]
    assert drafted["changes"].startswith(f"new family {FAMILY} (nano-2); slots per epoch: 64 instead of")
    with pytest.raises(SapoError, match="1 auditors with a bond have signed, and 2 must"):
        announce(desk.config(A), desk.file, agree)
    assert signers(sign(desk.config(B), desk.file, agree)) == sorted(map(str, (A.account, B.account)))
    announce(desk.config(STRANGER), desk.file, agree)  # anyone may
    document = json.loads(desk.file.read_text())["successor"].encode()
    (found,) = desk.announced()
    assert found.successor is not None
    assert found == Announcement(0, NOW + 20, SuccessorFolder(desk.root / "any").add(document))
    for who in (A, B, STRANGER):  # all of them can send it to others
        assert SuccessorFolder(desk.config(who).data_dir / "successors").document(found.successor) == document
    assert show(desk.config(C))["changes"] == [
        {
            "number": 0,
            "from epoch": NOW + 20,
            "terms": str(found.successor),
            "terms are here": False,
            "leaving": None,
            "entering": None,
        }
    ]


def test_a_quorum_replaces_an_auditor(desk: Desk) -> None:
    draft = ChangeDraft(leaving=C.account, entering=STRANGER.account)
    propose(desk.config(STRANGER), desk.file, draft, agree)  # who drafts it need not be an auditor
    for who in (A, B):
        sign(desk.config(who), desk.file, agree)
    announce(desk.config(A), desk.file, agree)
    replacement = Replacement(NOW + 16, C.account, STRANGER.account)
    assert desk.announced() == (Announcement(0, NOW + 16, None, replacement),)
    auditors, _ = desk.world.contracts.ledger.auditors()
    assert auditors.of(NOW + 15) == tuple(sorted(one.account for one in (A, B, C)))
    assert auditors.of(NOW + 16) == tuple(sorted(one.account for one in (A, B, STRANGER)))


def test_a_quorum_withdraws_an_announced_change(desk: Desk) -> None:
    draft = ChangeDraft(leaving=C.account, entering=STRANGER.account)
    propose(desk.config(A), desk.file, draft, agree)
    sign(desk.config(B), desk.file, agree)
    announce(desk.config(A), desk.file, agree)
    with pytest.raises(SapoError, match="another change is announced for epoch 116"):
        propose(desk.config(A), desk.root / "other.json", draft, agree)
    back = desk.root / "back.json"
    propose(desk.config(A), back, ChangeDraft(withdraws=True), agree)
    sign(desk.config(C), back, agree)
    announce(desk.config(C), back, agree)
    assert desk.announced() == ()
    with pytest.raises(SapoError, match="the ledger refuses it"):
        announce(desk.config(A), desk.file, agree)  # its number was used: no signature counts twice


def test_a_late_announcement_is_refused_with_a_hint(desk: Desk) -> None:
    draft = ChangeDraft(leaving=C.account, entering=STRANGER.account, epoch=NOW + 7)
    propose(desk.config(A), desk.file, draft, agree)
    sign(desk.config(B), desk.file, agree)
    with pytest.raises(SapoError, match="the ledger refuses it") as caught:
        announce(desk.config(A), desk.file, agree)
    assert "8 epochs of notice" in str(caught.value.hint)


def test_only_shown_data_is_signed(desk: Desk) -> None:
    propose(desk.config(A), desk.file, ChangeDraft(leaving=C.account, entering=STRANGER.account), agree)
    before = desk.file.read_text()
    with pytest.raises(SapoError, match="nothing was signed"):
        sign(desk.config(B), desk.file, refuse)
    with pytest.raises(SapoError, match="is not an auditor"):
        sign(desk.config(STRANGER), desk.file, agree)
    assert desk.file.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"swarm_id": "', '"swarm_id": "0', "belongs to the swarm"),
        ("", "", ""),
        ('"number": 0', '"number": -1', "is not a valid change file"),
        ('"sapo/change/1"', '"sapo/change/2"', "is not a valid change file"),
        ('\\"slots_per_epoch\\": 64', '\\"slots_per_epoch\\": 0', "cannot follow"),
        ('\\"retired\\": []', '\\"retired\\": [], \\"epoch_seconds\\": 5', "cannot follow"),
    ],
)
def test_a_signature_does_not_count_after_the_file_was_altered(
    desk: Desk, old: str, new: str, why: str
) -> None:
    propose(desk.config(A), desk.file, ChangeDraft(slots_per_epoch=64), agree)
    text = desk.file.read_text()
    if not why:  # a signature is for these bytes alone
        desk.file.write_text(text.replace('\\"slots_per_epoch\\": 64', '\\"slots_per_epoch\\": 65'))
        assert signers(sign(desk.config(B), desk.file, agree)) == [str(B.account)]
        return
    assert old in text
    desk.file.write_text(text.replace(old, new))
    with pytest.raises(SapoError, match=why):
        sign(desk.config(B), desk.file, agree)


def test_an_unknown_family_is_refused(desk: Desk) -> None:
    for draft in (ChangeDraft(families=(("no_such", "nano"),)), ChangeDraft(retired=(("no_such", "nano"),))):
        with pytest.raises(SapoError, match="no_such"):
            propose(desk.config(A), desk.file, draft, agree)
    assert not desk.file.exists()
