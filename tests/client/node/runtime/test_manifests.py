"""Choice of the swarm: manifests that are missing, damaged, of another swarm or of another suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.swarm import make_chain_manifest, make_manifest, make_suite

from sapo_client.errors import ExitCode, SapoError
from sapo_client.node.runtime.manifests import (
    TasksUnknown,
    read_manifest,
    require_same_suite,
    settle_manifest,
)
from sapo_client.paths import DataDir
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.gate import BondGate, OpenGate
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.jail import launch

MANIFEST = make_manifest()


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data").create()


def written(folder: Path, manifest: Manifest, change: Callable[[str], str] = lambda text: text) -> Path:
    path = folder / "manifest.json"
    path.write_text(change(manifest_to_json(manifest)), encoding="utf-8")
    return path


def refusal(action: Callable[[], object]) -> tuple[int, str, str]:
    """Return exit code, text and hint of a refusal."""
    with pytest.raises(SapoError) as caught:
        action()
    return caught.value.exit_code, caught.value.text, caught.value.hint


def test_a_named_manifest_is_kept_for_the_next_start(data: DataDir, tmp_path: Path) -> None:
    path = written(tmp_path, MANIFEST)
    assert settle_manifest(path, data) == MANIFEST
    path.unlink()
    assert settle_manifest(None, data) == MANIFEST
    assert [found.name for found in data.root.iterdir()] == ["manifest.json"]


def test_without_any_manifest_the_hint_names_both_ways(data: DataDir) -> None:
    code, text, hint = refusal(lambda: settle_manifest(None, data))
    assert (code, "no manifest was named" in text) == (ExitCode.CONFIG, True)
    assert "--manifest" in hint
    assert "sapo testnet up" in hint


def test_a_missing_file_is_named(data: DataDir, tmp_path: Path) -> None:
    code, text, _ = refusal(lambda: settle_manifest(tmp_path / "nowhere.json", data))
    assert (code, "nowhere.json" in text) == (ExitCode.CONFIG, True)
    assert not data.manifest.exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("epoch_seconds", "epoch_secounds", 1), "epoch_seco"),
        (lambda text: text.replace('"epoch_seconds": 60', '"epoch_seconds": "60"'), "epoch_seconds"),
        (lambda text: text.replace('"epoch_seconds": 60', '"epoch_seconds": 0'), "epoch"),
        (lambda text: text[:-10], "manifest"),
        (lambda text: "", "manifest"),
    ],
    ids=["typo", "text for a number", "impossible", "torn", "empty"],
)
def test_a_damaged_manifest_is_refused(
    data: DataDir, tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    path = written(tmp_path, MANIFEST, change)
    assert path.read_text() != manifest_to_json(MANIFEST)
    code, text, hint = refusal(lambda: settle_manifest(path, data))
    assert (code, str(path) in text, says in text) == (ExitCode.CONFIG, True, True)
    assert "must not be edited" in hint
    assert not data.manifest.exists()


@pytest.mark.parametrize("field", ['"version": 9,', '"terms_of_tomorrow": 1,'])
def test_a_manifest_of_a_later_release_asks_for_that_release(tmp_path: Path, field: str) -> None:
    """It is no damage, and whoever runs the swarm would send the same file again."""
    path = written(tmp_path, MANIFEST, lambda text: text.replace("{", f"{{{field}", 1))
    code, text, hint = refusal(lambda: read_manifest(path))
    assert (code, "release of sapo" in text) == (ExitCode.CONFIG, True)
    assert hint.startswith("install the newest release of sapo; ")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"\xff\xfe")
    assert refusal(lambda: read_manifest(path))[0] == ExitCode.CONFIG


def test_a_data_directory_belongs_to_one_swarm(data: DataDir, tmp_path: Path) -> None:
    settle_manifest(written(tmp_path, MANIFEST), data)
    code, text, hint = refusal(
        lambda: settle_manifest(written(tmp_path, replace(MANIFEST, epoch_seconds=61)), data)
    )
    assert (code, "another swarm" in text, "--data-dir" in hint) == (ExitCode.CONFIG, True, True)
    assert read_manifest(data.manifest) == MANIFEST


def test_names_and_bootstrap_may_change_within_a_swarm(data: DataDir, tmp_path: Path) -> None:
    settle_manifest(written(tmp_path, MANIFEST), data)
    moved = replace(MANIFEST, name="renamed", bootstrap=("/ip4/127.0.0.1/tcp/1/p2p/x",))
    assert settle_manifest(written(tmp_path, moved), data) == moved == read_manifest(data.manifest)


def test_a_suite_that_this_installation_derives_differently_is_refused(weekdays: Suite) -> None:
    require_same_suite(make_manifest(suite=weekdays))
    code, text, hint = refusal(lambda: require_same_suite(make_manifest(suite=make_suite())))
    assert (code, "other tasks" in text, "release" in hint) == (ExitCode.CONFIG, True, True)
    other = replace(weekdays, reasoning_gym="0.1.19")
    code, text, hint = refusal(lambda: require_same_suite(make_manifest(suite=other)))
    assert (code, "0.1.19" in text) == (ExitCode.CONFIG, True)
    assert hint.startswith("install the release of sapo")


def test_a_timeout_while_deriving_tasks_is_a_transient_error(
    weekdays: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_COMMAND_SECONDS", 0.001)
    launch.sample_digest.cache_clear()
    with pytest.raises(TasksUnknown, match=r"cannot be derived.*timed out") as caught:
        require_same_suite(make_manifest(suite=weekdays))
    assert (caught.value.transient, caught.value.exit_code) == (True, ExitCode.VERIFICATION)
    assert "try again later" in caught.value.hint


def test_a_suite_with_an_unknown_scorer_is_refused(weekdays: Suite) -> None:
    [family] = weekdays.families
    strange = replace(weekdays, families=(replace(family, scorer="python/1"),))
    assert refusal(lambda: require_same_suite(make_manifest(suite=strange)))[0] == ExitCode.CONFIG


def test_swarms_with_a_gate_are_joined(data: DataDir, tmp_path: Path) -> None:
    gate = BondGate(Account(b"\x04" * 20), unit=1, exit_seconds=2**32)
    bonded = make_chain_manifest(version=2, gate=gate)
    assert settle_manifest(written(tmp_path, bonded), data) == bonded
    data.manifest.unlink()
    open_ = make_manifest(version=2, gate=OpenGate())
    assert settle_manifest(written(tmp_path, open_), data) == open_


def test_islands_that_follow_the_ledger_are_joined(data: DataDir, tmp_path: Path) -> None:
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=144, most_islands=64)
    manifest = make_chain_manifest(version=2, islands=terms)
    assert settle_manifest(written(tmp_path, manifest), data) == manifest
