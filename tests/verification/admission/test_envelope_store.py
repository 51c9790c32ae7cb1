"""The store of recently admitted envelopes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.swarm import EPOCH, Identity, make_admission, make_manifest, moment

from sapo_protocol.identifiers import ContentId
from sapo_verification.admission.envelope_store import KEPT_EPOCHS, EnvelopeStore
from sapo_verification.types import AdmittedRollout

MANIFEST = make_manifest()
ALICE = Identity(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.sqlite"


def message_of(epoch: int, slot: int = 0) -> bytes:
    return ALICE.message(MANIFEST, epoch=epoch, slot=slot)


def hear(heard: EnvelopeStore, epoch: int, slot: int = 0) -> AdmittedRollout:
    message = message_of(epoch, slot)
    admitted = make_admission(MANIFEST, ALICE).admit(message, moment(MANIFEST, epoch))
    heard.add(admitted, message)
    heard.add(admitted, message)  # twice is once
    return admitted


def test_an_envelope_is_returned_unchanged(path: Path) -> None:
    admitted = hear(EnvelopeStore(path), EPOCH)
    again = EnvelopeStore(path)
    assert again.envelope(admitted.content_id) == message_of(EPOCH)
    assert again.envelope(ContentId(bytes(32))) is None
    assert list(again.latest(9)) == [(admitted.content_id, message_of(EPOCH))]


def test_the_newest_epochs_come_first_and_the_window_in_order(path: Path) -> None:
    heard = EnvelopeStore(path)
    for epoch in (5, 3, 4):
        hear(heard, epoch)
    by_epoch = {epoch: message_of(epoch) for epoch in (3, 4, 5)}
    assert [envelope for _, envelope in heard.latest(2)] == [by_epoch[5], by_epoch[4]]
    assert tuple(heard.since(4)) == (by_epoch[4], by_epoch[5])


def test_old_epochs_are_dropped(path: Path) -> None:
    heard = EnvelopeStore(path)
    old, young = hear(heard, EPOCH), hear(heard, EPOCH + 1)
    heard.forget(EPOCH + KEPT_EPOCHS)
    assert heard.envelope(old.content_id) is None
    assert heard.envelope(young.content_id) == message_of(EPOCH + 1)
