"""One envelope, stage by stage: a valid one passes, one with any changed byte fails at its rule's stage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes import Home
from support.sapo_process import SAPO, TIMEOUT_SECONDS
from support.swarm import Identity, make_manifest

from sapo_client.account.verify_file import VerificationStep, steps
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.envelope_store import EnvelopeStore

NOT_IN_A_FILE = (3, 4, 8, 11, 12, 13)
"""Stages that no file can show."""

ALICE = Identity(1)


@pytest.fixture(scope="module")
def received(two_nodes: Any) -> tuple[DataDir, bytes]:
    """A node's data directory, and an envelope of the other node that it received."""
    home: Home = two_nodes.first
    others = {event["content_id"] for event in two_nodes.second.events("published")}
    envelopes = {id_.hex(): envelope for id_, envelope in EnvelopeStore(home.data.database).latest(1000)}
    return home.data, next(envelope for id_, envelope in envelopes.items() if id_ in others)


def taken(message: bytes, data: DataDir) -> list[VerificationStep]:
    return list(steps(message, None, data))


def sapo_verify(tmp_path: Path, message: bytes, data: DataDir, *flags: str) -> tuple[int, str]:
    """Return exit code and output of the real command."""
    import subprocess

    file = tmp_path / "envelope"
    file.write_bytes(message)
    command = [SAPO, "verify", str(file), "--data-dir", str(data.root), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout


def test_an_envelope_that_a_node_received_passes_every_step(
    received: tuple[DataDir, bytes], tmp_path: Path
) -> None:
    data, envelope = received
    code, output = sapo_verify(tmp_path, envelope, data, "--json")
    result = json.loads(output)
    outcomes = {step["number"]: step["ok"] for step in result["steps"]}
    assert outcomes == {stage: None if stage in NOT_IN_A_FILE else True for stage in range(14)}
    assert (code, result["verified"]) == (0, True)


def test_a_changed_byte_ends_in_exit_code_7(received: tuple[DataDir, bytes], tmp_path: Path) -> None:
    data, envelope = received
    place = len(envelope) // 2
    changed = envelope[:place] + bytes([envelope[place] ^ 0x20]) + envelope[place + 1 :]
    code, output = sapo_verify(tmp_path, changed, data)
    last = output.splitlines()[-1].split()
    assert (code, last[1]) == (7, "fail")
    assert int(last[0]) <= 7


@given(place=st.integers(min_value=0), mask=st.integers(1, 255))
def test_any_changed_byte_fails_at_the_stage_of_its_rule(
    received: tuple[DataDir, bytes], place: int, mask: int
) -> None:
    data, envelope = received
    place %= len(envelope)
    changed = envelope[:place] + bytes([envelope[place] ^ mask]) + envelope[place + 1 :]
    *passed, last = taken(changed, data)
    assert (last.ok, last.stage) == (False, len(passed))
    assert [step.stage for step in passed] == list(range(len(passed)))
    assert last.rule is not None
    assert last.rule.startswith(f"R{last.stage}.")
    assert last.detail


def test_every_byte_is_covered_by_some_step(received: tuple[DataDir, bytes]) -> None:
    data, envelope = received
    for place in range(len(envelope)):
        changed = envelope[:place] + bytes([envelope[place] ^ 1]) + envelope[place + 1 :]
        assert taken(changed, data)[-1].ok is False, place


@given(cut=st.integers(min_value=0), tail=st.binary(max_size=9))
def test_truncated_and_extended_envelopes_fail_at_their_encoding(
    received: tuple[DataDir, bytes], cut: int, tail: bytes
) -> None:
    data, envelope = received
    for changed in (envelope[: cut % len(envelope)], envelope + b"\x00" + tail):
        *_, last = taken(changed, data)
        assert (last.name, last.ok) == ("encoding", False)


def test_an_envelope_of_another_swarm_fails_at_its_swarm(two_nodes: Any) -> None:
    home: Home = two_nodes.first
    other = replace(home.manifest, epoch_seconds=home.manifest.epoch_seconds + 1)
    *_, last = taken(ALICE.message(other), home.data)
    assert (last.name, last.ok) == ("swarm and kind", False)
    assert "swarm" in last.detail


def test_a_certificate_fails_at_the_step_swarm_and_kind(two_nodes: Any) -> None:
    home: Home = two_nodes.first
    certificate = ALICE.certificate(home.manifest).to_bytes()
    assert [(step.name, step.ok) for step in taken(certificate, home.data)] == [
        ("transport", True),
        ("encoding", True),
        ("swarm and kind", False),
    ]


MANIFEST = make_manifest()


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """Return a directory that names a swarm, and in which no node ran."""
    made = DataDir(tmp_path / "data").create()
    made.manifest.write_text(manifest_to_json(MANIFEST))
    return made


def outcome_of(stage: int, message: bytes, data: DataDir) -> bool | None:
    """Return the outcome of one stage; nothing after it is checked."""
    return next(step.ok for step in steps(message, None, data) if step.stage == stage)


def test_rollouts_beyond_the_swarms_limits_fail_at_their_assignment(data: DataDir) -> None:
    limits = MANIFEST.limits
    for changes in (
        {"slot": limits.slots_per_epoch},
        {"family": 99},
        {"completions": (b"7",) * (limits.max_completions + 1)},
    ):
        assert outcome_of(6, ALICE.message(MANIFEST, **changes), data) is False


@pytest.mark.parametrize("epoch", [10**9, 2**40, 2**64 - 1])
def test_an_epoch_beyond_the_calendar_is_reported(data: DataDir, epoch: int) -> None:
    message = ALICE.message(MANIFEST, epoch=epoch)
    told = next(step for step in steps(message, None, data) if step.stage == 3)
    assert (told.name, told.ok) == ("epoch", None)
    assert str(epoch) in told.detail
    assert outcome_of(5, message, data) is None


@pytest.mark.parametrize(("since", "until", "ok"), [(-60, 60, True), (10, 9000, True), (9000, 9999, False)])
def test_a_certificate_must_have_been_valid_while_the_epoch_was_accepted(
    data: DataDir, since: int, until: int, ok: bool
) -> None:
    start = MANIFEST.genesis_seconds + 3 * MANIFEST.epoch_seconds
    certificate = ALICE.certificate(MANIFEST, start + since, start + until).to_bytes()
    CertificateStore(MANIFEST, data.database).admit(certificate, start + since)
    assert outcome_of(5, ALICE.message(MANIFEST), data) is ok
