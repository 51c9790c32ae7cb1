"""`sapo verify` and `export rollouts`: the stages of a valid envelope, and of changed ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sapo_process import Run
from support.swarm import Identity, make_manifest, moment

from sapo_client.paths import DataDir
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.rules import STAGES
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.rollouts import Admission
from sapo_verification.suites.catalogue import suite

AUTHOR = Identity(1)
NOT_IN_A_FILE = (3, 4, 8, 11, 12, 13)
"""Stages that no file can show."""

CHECKED = {number: None if number in NOT_IN_A_FILE else True for number in range(len(STAGES))}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return make_manifest(suite=suite("nano", ["basic_arithmetic"]))  # its real sample digest


@pytest.fixture
def manifest_file(manifest: Manifest, tmp_path: Path) -> Path:
    path = tmp_path / "manifest.json"
    path.write_text(manifest_to_json(manifest))
    return path


def verify(sapo: Run, file: Path, *more: object) -> tuple[int, dict[int, bool | None]]:
    """Return the exit code, and the outcome of each stage of the specification."""
    done = sapo("verify", file, "--json", *more)
    taken = json.loads(done.stdout)["steps"]
    assert [step["name"] for step in taken] == [STAGES[step["number"]] for step in taken]
    return done.returncode, {step["number"]: step["ok"] for step in taken}


def test_a_valid_envelope_passes_every_step_for_which_there_is_data(
    sapo: Run, manifest: Manifest, manifest_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "whole.envelope"
    file.write_bytes(AUTHOR.message(manifest))
    code, steps = verify(sapo, file, "--manifest", manifest_file)
    assert (code, steps) == (0, CHECKED | {5: None})
    shown = sapo("verify", file, "--manifest", manifest_file)
    lines = [line.split() for line in shown.stdout.splitlines()]
    marks = {True: "ok", None: "-"}
    assert [line[:2] for line in lines] == [
        [str(number), "skip" if number == 5 else marks[ok]] for number, ok in CHECKED.items()
    ]
    assert shown.stderr == (
        "warning: verified, except for stages that could not be checked here: certificate\n"
    )


def test_each_fault_fails_at_its_own_step(
    sapo: Run, manifest: Manifest, manifest_file: Path, tmp_path: Path
) -> None:
    whole = AUTHOR.message(manifest, completions=(b"seven", b"eight"))
    other_swarm = make_manifest(name="other", epoch_seconds=61)
    slots = manifest.limits.slots_per_epoch
    cases = {
        "truncated": (whole[:-1], "encoding", "R1.0.2"),
        "other-swarm": (AUTHOR.message(other_swarm), "swarm and kind", "R2.3"),
        "over-quota": (AUTHOR.message(manifest, slot=slots), "assigned slot", "R6.1"),
        "text": (whole.replace(b"seven", b"sevem"), "signature", "R7.1"),
        "signature": (whole[:-1] + bytes([whole[-1] ^ 1]), "signature", "R7.1"),
        "impersonated": (AUTHOR.message(manifest, node=Identity(2).node), "signature", "R7.1"),
    }
    for name, (content, step, rule) in cases.items():
        file = tmp_path / name
        file.write_bytes(content)
        done = sapo("verify", file, "--json", "--manifest", manifest_file)
        *before, last = json.loads(done.stdout)["steps"]
        told = {key: last[key] for key in ("name", "ok", "rule")}
        assert (done.returncode, told) == (7, {"name": step, "ok": False, "rule": rule}), name
        assert last["detail"].startswith(rule), name
        assert [step["name"] for step in before] == list(STAGES[: last["number"]]), name
        assert all(step["ok"] is not False and step["rule"] is None for step in before), name


def test_a_node_that_received_the_envelope_has_its_certificate(
    sapo: Run, manifest: Manifest, tmp_path: Path
) -> None:
    data, now, envelope = DataDir(tmp_path / "node").create(), moment(manifest), AUTHOR.message(manifest)
    data.manifest.write_text(manifest_to_json(manifest))
    certificates = CertificateStore(manifest, data.database)
    certificates.admit(AUTHOR.certificate(manifest).to_bytes(), now)
    EnvelopeStore(data.database).add(Admission(manifest, certificates).admit(envelope, now), envelope)
    taken = sapo("export", "rollouts", tmp_path / "taken", "--data-dir", data.root)
    assert (taken.returncode, taken.stderr) == (0, "")
    [file] = (tmp_path / "taken").iterdir()
    assert file.stem == parse_envelope(envelope, manifest.swarm_id).content_id.hex()
    assert file.read_bytes() == envelope
    assert verify(sapo, file, "--data-dir", data.root) == (0, CHECKED)


def test_nothing_to_export_or_no_manifest_is_an_error(sapo: Run, tmp_path: Path) -> None:
    assert sapo("export", "rollouts", tmp_path / "taken").returncode == 8
    (tmp_path / "noise").write_bytes(b"\xff" * 100)
    done = sapo("verify", tmp_path / "noise")
    assert (done.returncode, done.stdout) == (3, "")
