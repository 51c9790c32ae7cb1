"""`sapo keys` and `init` as processes: modes, no overwrite, passphrases, terminals."""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import subprocess
import termios
from pathlib import Path

import pytest
from support.sapo_process import SAPO, TIMEOUT_SECONDS, Run
from support.swarm import make_manifest

from sapo_client import keystore
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.identifiers import Account, SwarmId
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.signing.database import SigningDatabase


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("open sesame\n")
    return path


def key_file(home: dict[str, str], name: str) -> Path:
    return Path(home["HOME"], ".config", "sapo", "keys", f"{name}.json")


def test_a_new_key_is_private_under_umask_0(home: dict[str, str]) -> None:
    done = subprocess.run(
        [SAPO, "keys", "new", "k", "--no-passphrase"],
        env=home,
        capture_output=True,
        text=True,
        umask=0,
        check=True,
    )
    path = key_file(home, "k")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "warning: the keys are stored without encryption" in done.stderr
    assert "sapo keys backup k FILE" in done.stderr


def test_new_refuses_an_existing_file_and_does_not_change_it(sapo: Run, home: dict[str, str]) -> None:
    assert sapo("keys", "new", "k", "--no-passphrase").returncode == 0
    before = key_file(home, "k").read_bytes()
    for again in (["keys", "new", "k", "--no-passphrase"], ["init", "k", "--no-passphrase"]):
        done = sapo(*again)
        assert done.returncode == 4
        assert str(key_file(home, "k")) in done.stderr
    assert key_file(home, "k").read_bytes() == before


def test_an_encrypted_key_opens_only_with_its_passphrase(
    sapo: Run, home: dict[str, str], secret: Path, tmp_path: Path
) -> None:
    made = sapo("keys", "new", "k", "--kdf", "interactive", "--passphrase-file", secret, "--json")
    card = json.loads(made.stdout)
    opened = keystore.load(key_file(home, "k"), PassphraseSource(secret))
    assert (card["node_id"], card["account"]) == (opened.node_id.hex(), str(opened.account))
    assert card["peer_id"].startswith("12D3KooW")
    (tmp_path / "wrong").write_text("open barley\n")
    done = sapo("join", "--identity", "k", "--alone", "--passphrase-file", tmp_path / "wrong")
    assert (done.returncode, "wrong passphrase" in done.stderr) == (4, True)
    assert json.loads(sapo("keys", "show", "k", "--ethereum").stdout)["version"] == 3


def test_without_terminal_and_passphrase_the_exit_code_is_4(sapo: Run, secret: Path) -> None:
    new = sapo("keys", "new", "other", input="typed\ntyped\n")
    assert (new.returncode, "there is no terminal to type it" in new.stderr) == (4, True)
    assert sapo("keys", "new", "k", "--kdf", "interactive", "--passphrase-file", secret).returncode == 0
    join = sapo("join", "--identity", "k", "--alone", input="open sesame\n")
    assert (join.returncode, "there is no terminal to type it" in join.stderr) == (4, True)


def test_an_exposed_key_is_refused(sapo: Run, home: dict[str, str]) -> None:
    sapo("keys", "new", "k", "--no-passphrase")
    key_file(home, "k").chmod(0o644)
    done = sapo("join", "--identity", "k")
    assert (done.returncode, f"hint: chmod 600 {key_file(home, 'k')}" in done.stderr) == (4, True)


def test_backup_and_restore(sapo: Run, home: dict[str, str], secret: Path, tmp_path: Path) -> None:
    sapo("keys", "new", "k", "--kdf", "interactive", "--passphrase-file", secret)
    copy = tmp_path / "copy.json"
    assert sapo("keys", "backup", "k", copy).returncode == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sapo("keys", "backup", "k", copy).returncode == 4  # the copy is a key too
    original = key_file(home, "k").read_bytes()
    key_file(home, "k").unlink()
    restored = sapo("keys", "restore", copy, "k", SAPO_PASSPHRASE_FILE=str(secret))
    assert restored.returncode == 0
    assert key_file(home, "k").read_bytes() == original
    copy.write_bytes(original.replace(b'"box": "', b'"box": "00'))
    assert sapo("keys", "restore", copy, "k2", SAPO_PASSPHRASE_FILE=str(secret)).returncode == 4
    assert not key_file(home, "k2").exists()


def test_the_commands_that_are_printed_quote_a_name_with_a_space(sapo: Run) -> None:
    made = sapo("keys", "new", "my key", "--no-passphrase").stderr.splitlines()
    assert [line.partition("sapo ")[2] for line in made[1:]] == [
        "keys backup 'my key' FILE",
        "join --identity 'my key' --alone",
        "join --identity 'my key' 'sapo://...'",
    ]


def test_list_and_id_show_public_parts(sapo: Run) -> None:
    assert json.loads(sapo("keys", "list", "--json").stdout) == []
    card = json.loads(sapo("keys", "new", "key", "--no-passphrase", "--json").stdout)
    assert json.loads(sapo("keys", "list", "--json").stdout) == [card]
    assert json.loads(sapo("id", "--json").stdout) == card
    assert card["node_id"] in sapo("id", "--identity", "key").stdout


def test_init_creates_identity_configuration_and_data_directory(sapo: Run, home: dict[str, str]) -> None:
    done = sapo("init", "--no-passphrase", "--json")
    assert json.loads(done.stdout)["name"] == "key"
    data = Path(home["HOME"], ".local", "share", "sapo", "node")
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert Path(home["HOME"], ".config", "sapo", "config.toml").is_file()


def on_a_terminal(home: dict[str, str], answers: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Return exit code and output of a command at a terminal whose prompts are answered."""
    controller, terminal = os.openpty()
    with subprocess.Popen(
        [SAPO, *arguments],
        env=home | {"TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(terminal)
        shown = _converse(controller, dict(answers))
        return process.wait(TIMEOUT_SECONDS), shown


def _converse(controller: int, answers: dict[str, str]) -> str:
    shown = ""
    while select.select([controller], [], [], TIMEOUT_SECONDS)[0]:
        try:
            chunk = os.read(controller, 4096)
        except OSError:  # Linux's way of saying that the last one has left the terminal
            chunk = b""
        if not chunk:
            break
        shown += chunk.decode()
        for prompt in [prompt for prompt in answers if prompt in shown]:
            os.write(controller, answers.pop(prompt).encode() + b"\n")
    os.close(controller)
    return shown


def test_a_new_passphrase_is_typed_twice_and_not_shown(home: dict[str, str], secret: Path) -> None:
    new = ("keys", "new", "k", "--kdf", "interactive")
    code, shown = on_a_terminal(home, {"New passphrase": "open sesame", "same again": "open barley"}, *new)
    assert (code, "the two passphrases differ" in shown) == (4, True)
    code, shown = on_a_terminal(home, {"New passphrase": "open sesame", "same again": "open sesame"}, *new)
    assert (code, "sesame" in shown) == (0, False)
    assert keystore.load(key_file(home, "k"), PassphraseSource(secret)).account


def test_colour_is_used_only_on_terminals_that_allow_it(home: dict[str, str]) -> None:
    on_a_terminal(home, {}, "keys", "new", "k", "--no-passphrase")
    cases = [("80", "keys", "list"), ("200", "keys", "list"), ("80", "keys", "show", "nobody")]
    for columns, *arguments in cases:
        _, coloured = on_a_terminal(home | {"COLUMNS": columns}, {}, *arguments)
        _, plain = on_a_terminal(home | {"COLUMNS": columns, "NO_COLOR": "1"}, {}, *arguments)
        assert "\x1b[" in coloured
        assert "\x1b[3" not in plain
        assert "\x1b[1;" not in plain


def test_a_signing_history_is_exported_and_imported(sapo: Run, tmp_path: Path) -> None:
    data, file = DataDir(tmp_path / "old").create(), tmp_path / "history.json"
    SigningDatabase(data.database).take_slots(SwarmId(b"\x01" * 32), Account(b"\x0a" * 20), 5, 4, 100)
    exported = sapo("keys", "signing", "export", str(file), "--data-dir", str(data.root), "--json")
    imported = sapo("keys", "signing", "import", str(file), "--data-dir", str(tmp_path / "new"), "--json")
    assert (exported.returncode, imported.returncode) == (0, 0)
    account = str(Account(b"\x0a" * 20))
    expected = [{"swarm": "01" * 32, "account": account, "epoch": 5, "next_slot": 4, "share": "0/1"}]
    assert json.loads(exported.stdout) == json.loads(imported.stdout) == expected
    again = sapo("keys", "signing", "export", str(file), "--data-dir", str(data.root))
    assert again.returncode == 4
    assert "error:" in again.stderr
    assert "hint:" in again.stderr


def test_a_rotation_shows_what_is_signed_and_needs_consent(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    data = DataDir(tmp_path / "data").create()
    data.manifest.write_text(manifest_to_json(make_manifest()), encoding="utf-8")
    SigningDatabase(data.database)
    sapo("keys", "new", "old", "--no-passphrase")
    command = ("keys", "rotate", "old", "new", "--data-dir", str(data.root), "--json")
    asked = sapo(*command, "--quiet")
    new = json.loads(key_file(home, "new").read_text())
    for words in ("NodeBinding", "0x" + new["node_id"], "not after", "digest", "again with --yes"):
        assert words in asked.stderr
    assert (asked.returncode, asked.stdout) == (2, "")
    done = sapo(*command, "--yes")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["account"], facts["new node id"]) == (0, new["account"], new["node_id"])
    again = sapo("join", "--identity", "old", "--data-dir", str(data.root))
    assert (again.returncode, "never signs again" in again.stderr) == (4, True)
