"""The identity file: created private, never overwritten, opened only intact and with the right passphrase."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import pytest
from eth_account import Account as EthAccount
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sapo_client import keystore
from sapo_client.errors import SapoError
from sapo_client.locks import holder, lock
from sapo_client.passphrase import PassphraseSource
from sapo_client.private_files import write_exclusive

P = ParamSpec("P")

PASSPHRASE = b"correct horse battery staple"


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAPO_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))
    for variable in ("SAPO_PASSPHRASE_FILE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> keystore.Identity:
    path = tmp_path_factory.mktemp("sealed") / "key.json"
    return keystore.create(path, PASSPHRASE, cost=keystore.INTERACTIVE)


def source(folder: Path, passphrase: bytes = PASSPHRASE) -> PassphraseSource:
    file = folder / "passphrase"
    file.write_bytes(passphrase + b"\n")
    return PassphraseSource(file)


def refusal(function: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> SapoError:
    with pytest.raises(SapoError) as caught:
        function(*arguments, **named)
    assert caught.value.hint
    return caught.value


def test_an_encrypted_identity_is_loaded_unchanged(sealed: keystore.Identity, tmp_path: Path) -> None:
    assert keystore.load(sealed.path, source(tmp_path)) == sealed
    assert bytes(SigningKey(sealed.node_seed).verify_key) == sealed.node_id
    assert stat.S_IMODE(sealed.path.stat().st_mode) == 0o600


def test_the_account_is_a_keystore_that_other_wallets_open(sealed: keystore.Identity) -> None:
    wallet = keystore.read(sealed.path).ethereum_keystore
    assert wallet is not None
    assert wallet["version"] == 3
    opened = EthAccount.decrypt(dict(wallet), PASSPHRASE)
    assert bytes(opened) == sealed.account_key
    assert EthAccount.from_key(opened).address == str(sealed.account)


def test_no_secret_is_in_the_file_or_in_a_repr(sealed: keystore.Identity) -> None:
    text = sealed.path.read_text() + repr(sealed) + str(sealed)
    for secret in (sealed.node_seed, sealed.account_key):
        assert secret.hex() not in text
        assert repr(secret) not in text
    assert PASSPHRASE.decode() not in text


def test_a_wrong_passphrase_is_an_error(sealed: keystore.Identity, tmp_path: Path) -> None:
    error = refusal(keystore.load, sealed.path, source(tmp_path, b"wrong"))
    assert (error.exit_code, "wrong passphrase" in error.text) == (4, True)


def test_an_unencrypted_identity_needs_no_passphrase(tmp_path: Path) -> None:
    made = keystore.create(tmp_path / "plain.json", None)
    assert keystore.load(made.path, PassphraseSource()) == made
    assert not keystore.read(made.path).encrypted


def test_an_existing_identity_is_never_overwritten(tmp_path: Path) -> None:
    made = keystore.create(tmp_path / "key.json", None)
    before = made.path.read_bytes()
    for again in (
        lambda: keystore.create(made.path, None),
        lambda: write_exclusive(made.path, b"x"),
    ):
        error = refusal(again)
        assert (error.exit_code, str(made.path) in error.text) == (4, True)
    assert made.path.read_bytes() == before


def test_the_file_is_private_from_its_creation_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = keystore.create(tmp_path / "deep" / "key.json", None)
    finally:
        os.umask(before)
    modes = (stat.S_IMODE(made.path.stat().st_mode), stat.S_IMODE(made.path.parent.stat().st_mode))
    assert modes == (0o600, 0o700)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_access_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    made = keystore.create(tmp_path / "key.json", None)
    made.path.chmod(mode)
    error = refusal(keystore.load, made.path, PassphraseSource())
    assert (error.exit_code, error.hint) == (4, f"chmod 600 {made.path}")


def test_a_missing_file_names_the_command() -> None:
    error = refusal(keystore.load, keystore.locate("alice"), PassphraseSource())
    assert (error.exit_code, error.hint) == (4, "make one: sapo keys new alice")


def test_a_public_part_that_belongs_to_other_keys_is_refused(tmp_path: Path) -> None:
    mine = keystore.create(tmp_path / "mine.json", None)
    other = keystore.create(tmp_path / "other.json", None)
    for name in ("node_id", "account"):
        document = json.loads(mine.path.read_text())
        document[name] = json.loads(other.path.read_text())[name]
        forged = tmp_path / f"forged-{name}.json"
        write_exclusive(forged, json.dumps(document).encode())
        assert refusal(keystore.load, forged, PassphraseSource()).exit_code == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_changed_byte_never_yields_another_identity(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "key.json"
    made = keystore.load(path, PassphraseSource()) if path.exists() else keystore.create(path, None)
    content = bytearray(path.read_bytes())
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] ^= data.draw(st.integers(1, 255))
    changed = tmp_path / "changed.json"
    changed.unlink(missing_ok=True)
    write_exclusive(changed, bytes(content))
    opened, told = attempt(changed)
    assert opened is None or (opened.node_seed, opened.account_key) == (made.node_seed, made.account_key)
    assert made.node_seed.hex() not in told


def attempt(path: Path) -> tuple[keystore.Identity | None, str]:
    """Return the opened identity or the user's error; any other exception is a failure."""
    try:
        return keystore.load(path, PassphraseSource()), ""
    except SapoError as error:
        return None, error.text + error.hint


def test_an_account_key_out_of_range_is_reported_as_damage(tmp_path: Path) -> None:
    made = keystore.create(tmp_path / "key.json", None)
    text = made.path.read_text().replace(made.account_key.hex(), "f" * 64)
    write_exclusive(tmp_path / "outside.json", text.encode())
    assert "damaged" in refusal(keystore.load, tmp_path / "outside.json", PassphraseSource()).text


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = tmp_path / "keys" / "key.json"
    assert keystore.locate("key") == named
    assert keystore.locate("./key") == Path("key")
    assert keystore.locate("key.json") == Path("key.json")
    (tmp_path / "key").touch()
    assert keystore.locate("key") == Path("key")
    assert keystore.locate(None) == named, "whoever names no identity means no file of this folder"
    keystore.create(named, None)
    assert keystore.locate("key") == named


def test_the_sources_of_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flag", "variable", "sapo-passphrase"):
        (tmp_path / name).write_text(f"from {name}\r\n")
    assert refusal(PassphraseSource().read, "x").exit_code == 4  # nobody types in a test run
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert PassphraseSource().read("x") == b"from sapo-passphrase"
    monkeypatch.setenv("SAPO_PASSPHRASE_FILE", str(tmp_path / "variable"))
    assert PassphraseSource().read("x") == b"from variable"
    assert PassphraseSource(tmp_path / "flag").read_new("x") == b"from flag"
    (tmp_path / "flag").write_text("\n")
    assert refusal(PassphraseSource(tmp_path / "flag").read, "x").exit_code == 4
    assert refusal(PassphraseSource(tmp_path / "missing").read, "x").exit_code == 4


HOLD = """
import sys
from pathlib import Path
from sapo_client.locks import lock
with lock(Path(sys.argv[1]), what="it"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_keeps_a_second_process_out_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "node.lock"
    assert holder(path) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(SapoError, match=f"pid {other.pid}") as caught, lock(path, what="it", exit_code=4):
            pytest.fail("two processes hold one lock")
        assert caught.value.exit_code == 4
        assert f"pid {other.pid}" in str(holder(path))
        other.kill()  # not even a word of goodbye
    assert holder(path) is None
    with lock(path, what="it"):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_one_identity_is_locked_once_even_within_a_process(tmp_path: Path) -> None:
    made = keystore.create(tmp_path / "key.json", None)
    copy = keystore.load(made.path, PassphraseSource())
    with made.lock():
        with pytest.raises(SapoError) as caught, copy.lock():
            pytest.fail("one identity runs twice")
        assert caught.value.exit_code == 4
    with copy.lock():
        pass
