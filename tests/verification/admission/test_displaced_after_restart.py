"""An account has its first key's certificate displaced; the node is restarted; then a second key signs."""

import sqlite3
from pathlib import Path

import pytest
from support.swarm import EPOCH, GENESIS_SECONDS, Identity, make_manifest, moment
from support.verification_harness import VerificationHarness

from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.admission import displaced as displaced_module
from sapo_verification.admission.certificates import MAX_NODES_PER_ACCOUNT, stored_certificates

MANIFEST = make_manifest()
NOW = moment(MANIFEST)
ALICE = Identity(1)
FIRST, *OTHERS = [Identity(2, key) for key in range(MAX_NODES_PER_ACCOUNT + 1)]
CERTIFICATES, ROLLOUTS = certificates_topic(MANIFEST.swarm_id), rollouts_topic(MANIFEST.swarm_id)


def content(key: Identity, text: bytes, slot: int = 0) -> bytes:
    return key.message(MANIFEST, slot=slot, completions=(text, b"no answer"))


def started(path: Path) -> VerificationHarness:
    node = VerificationHarness((), MANIFEST, own=ALICE.account, database=path)
    node.engine.restore(NOW)
    return node


def introduce(node: VerificationHarness, *keys: Identity) -> None:
    for key in keys:
        node.engine.receive(CERTIFICATES, key.certificate(MANIFEST).to_bytes(), NOW)


def with_displaced(path: Path) -> VerificationHarness:
    """Return a node that took a rollout of the first key, whose certificate the others' displaced."""
    node = started(path)
    introduce(node, FIRST)
    node.engine.receive(ROLLOUTS, content(FIRST, b"one"), NOW)
    introduce(node, *OTHERS)
    return node


def rows(path: Path) -> list[bytes]:
    with sqlite3.connect(path) as connection:
        return [bytes(row[0]) for row in connection.execute("SELECT envelope FROM displaced ORDER BY rowid")]


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_second_content_proves_the_equivocation_after_a_restart(tmp_path: Path, restarts: int) -> None:
    path = tmp_path / "node.sqlite"
    node = with_displaced(path)
    for _ in range(restarts):
        node = started(path)
    assert node.engine.certificates.envelopes_of([FIRST.node]) == (FIRST.certificate(MANIFEST).to_bytes(),)
    assert len(node.pool) == 1
    node.engine.receive(ROLLOUTS, content(OTHERS[0], b"two"), NOW)
    assert node.reputation.is_banned(FIRST.account, EPOCH)
    assert len(node.engine.proofs) == 1


def test_a_displaced_certificate_admits_no_new_messages_after_a_restart(tmp_path: Path) -> None:
    with_displaced(tmp_path / "node.sqlite")
    node = started(tmp_path / "node.sqlite")
    node.engine.receive(ROLLOUTS, content(FIRST, b"one", slot=1), NOW)
    assert len(node.pool) == 1
    introduce(node, FIRST)
    node.engine.receive(ROLLOUTS, content(FIRST, b"one", slot=1), NOW)
    assert len(node.pool) == 2


def test_a_certificate_that_is_known_again_is_not_kept_twice(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    node = with_displaced(path)
    assert rows(path) == [FIRST.certificate(MANIFEST).to_bytes()]
    introduce(node, FIRST)
    assert rows(path) == []
    assert FIRST.node in [key for key, _, _ in stored_certificates(path)]


def test_stored_displaced_certificates_are_bounded_and_valid_across_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(displaced_module, "MAX_DISPLACED", 2)
    path, keys = tmp_path / "node.sqlite", [Identity(2, key) for key in range(9)]
    node = started(path)
    for slot, key in enumerate(keys):
        introduce(node, key)
        node.engine.receive(ROLLOUTS, content(key, b"text", slot), NOW)
    last = [key.certificate(MANIFEST).to_bytes() for key in keys[3:5]]
    assert rows(path) == last
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO displaced VALUES (?, ?, ?)", (b"node", b"account", b"damaged"))
        expired = Identity(5).certificate(MANIFEST, not_after=GENESIS_SECONDS + 1)
        connection.execute(
            "INSERT INTO displaced VALUES (?, ?, ?)",
            (Identity(5).node, Identity(5).account, expired.to_bytes()),
        )
    started(path)
    assert rows(path) == last
