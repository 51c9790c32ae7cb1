"""Content of the output with `-v`, `-vv` and of the log file, through the real command."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.nodes import COMPLETIONS, manifest_of
from support.sapo_process import Run
from support.swarm import make_manifest

from sapo_client import keystore
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) +(\S+): (.*)")
PASSPHRASE, PASSWORD, PATH = "correct horse", "hunter2", "access-key-in-the-path"
URL = f"http://user:{PASSWORD}@127.0.0.1:1/v3/{PATH}"
COMMANDS = {
    "config": ["config", "show"],
    "keys": ["keys", "new", "key", "--no-passphrase", "--json"],
    "status": ["status"],
}


def records(text: str) -> list[tuple[str, str, str]]:
    """Level, logger and message of each line that is a record."""
    found = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    return [(match[1], match[2], match[3]) for match in found]


def levels(text: str) -> set[str]:
    return {level for level, _, _ in records(text)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_v_adds_output_only_to_standard_error(sapo: Run, tmp_path: Path, name: str) -> None:
    plain, info, debug, quiet = (
        sapo(*COMMANDS[name], *flags, HOME=str(tmp_path / str(number)))
        for number, flags in enumerate(([], ["-v"], ["-vv"], ["-q", "-vv"]))
    )
    assert [levels(done.stderr) for done in (plain, info, quiet)] == [set(), {"INFO"}, set()]
    assert levels(debug.stderr) >= {"INFO", "DEBUG"}
    assert not any(records(done.stdout) for done in (plain, info, debug, quiet))
    assert len({done.returncode for done in (plain, info, debug, quiet)}) == 1


@pytest.fixture
def secrets(sapo: Run, tmp_path: Path) -> list[str]:
    """Make an identity with a passphrase; return what no log may hold."""
    file, key = tmp_path / "passphrase", tmp_path / "key.json"
    file.write_text(PASSPHRASE)
    made = sapo("keys", "new", key, "--kdf", "interactive", "--passphrase-file", file)
    assert made.returncode == 0, made.stderr
    opened = keystore.load(key, PassphraseSource(file))
    return [PASSPHRASE, PASSWORD, PATH, opened.node_seed.hex(), opened.account_key.hex()]


def test_a_chain_that_does_not_answer_is_named_without_its_password(
    sapo: Run, secrets: list[str], tmp_path: Path
) -> None:
    manifest = make_manifest(chain_id=5, registry=Account(bytes(20)), ledger=Account(bytes(20)))
    (tmp_path / "manifest.json").write_text(manifest_to_json(manifest))
    done = sapo(
        *(
            "ledger",
            "register",
            "--yes",
            "--identity",
            tmp_path / "key.json",
            "--manifest",
            tmp_path / "manifest.json",
        ),
        *("--passphrase-file", tmp_path / "passphrase", "--rpc", URL, "--data-dir", tmp_path, "-vv"),
    )
    assert done.returncode != 0
    messages = [text for _, name, text in records(done.stderr) if name == "sapo_client.ledger.endpoints"]
    assert messages[0] == "http://127.0.0.1:1: no answer (ConnectionError); it rests for 1 s"
    assert [secret for secret in secrets if secret in done.stderr] == []


@pytest.mark.e2e
def test_a_node_logs_to_its_directory_and_shows_libp2p_when_asked(
    sapo: Run, secrets: list[str], policy: Path, weekdays: Suite, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text(manifest_to_json(manifest_of(weekdays)))
    data = DataDir(tmp_path / "data")

    def join(*flags: str) -> subprocess.CompletedProcess[str]:
        done = sapo(
            *("join", "--identity", tmp_path / "key.json", "--passphrase-file", tmp_path / "passphrase"),
            *("--manifest", tmp_path / "manifest.json", "--model", policy, "--data-dir", data.root),
            *("--listen", "/ip4/127.0.0.1/tcp/0", "--rpc", URL, "--steps", "1", "--json", *flags),
            SAPO_LEARNER__COMPLETIONS=str(COMPLETIONS),
            SAPO_LEARNER__MAX_NEW_TOKENS="6",
            SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS="0",
            SAPO_OBSERVE__LOG_MAX_BYTES=str(64 * 1024),
            SAPO_OBSERVE__LOG_KEEP="2",
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["round"] == 1
        return done

    plain = join()
    assert records(plain.stderr) == []
    log = records(data.log.read_text())
    assert {level for level, _, _ in log} == {"INFO"}
    for name in ("observe.events", "observe.control", "learner.process"):
        assert f"sapo_client.{name}" in {logger for _, logger, _ in log}
    assert [m.split()[0] for _, _, m in log if m.startswith(("node_started", "stopped"))] == [
        "node_started",
        "stopped",
    ]

    data.log.write_text("x" * 64 * 1024)
    debug = join("-vv")
    heard = {name.partition(".")[0] for level, name, _ in records(debug.stderr) if level == "DEBUG"}
    assert heard == {"sapo_client", "libp2p"}
    assert sorted(file.name for file in data.log.parent.iterdir()) == ["sapo.log", "sapo.log.1"]
    assert levels(data.log.read_text()) == {"INFO"}
    texts = [plain.stderr, debug.stderr, *(file.read_text() for file in data.log.parent.iterdir())]
    assert [secret for secret in secrets if any(secret in text for text in texts)] == []
