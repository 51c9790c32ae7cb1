"""Identity files of strangers: whoever made a file decides what opening it costs, but only up to a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account as EthAccount

from sapo_client import keystore
from sapo_client.errors import SapoError
from sapo_client.passphrase import PassphraseSource
from sapo_client.private_files import write_exclusive

PASSPHRASE = b"correct horse battery staple"
CHEAP = keystore.Cost(1, 2**13, 2)
SCRYPT = {"dklen": 32, "n": 2, "r": 8, "p": 1, "salt": "00" * 16}
PBKDF2 = {"dklen": 32, "c": 1, "prf": "hmac-sha256", "salt": "00" * 16}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the content of an encrypted identity file."""
    path = tmp_path_factory.mktemp("stranger") / "key.json"
    keystore.create(path, PASSPHRASE, cost=CHEAP)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def written(folder: Path, document: Mapping[str, Any], keystore_fields: Mapping[str, Any]) -> Path:
    """Return a new file with the identity, some fields of its Ethereum keystore replaced."""
    changed = deepcopy(dict(document))
    changed["account_key"]["keystore"].update(keystore_fields)
    write_exclusive(folder / "key.json", json.dumps(changed).encode())
    return folder / "key.json"


def crypto(document: Mapping[str, Any], **fields: object) -> dict[str, Any]:
    return {"crypto": {**document["account_key"]["keystore"]["crypto"], **fields}}


@pytest.mark.parametrize(
    ("kdf", "params"),
    [
        ("scrypt", SCRYPT | {"n": 2**21}),
        ("scrypt", SCRYPT | {"n": 2**40}),
        ("scrypt", SCRYPT | {"r": 2**24}),
        ("scrypt", SCRYPT | {"n": 2**18, "p": 5}),
        ("scrypt", SCRYPT | {"p": 2**30}),
        ("scrypt", SCRYPT | {"dklen": 2**31}),
        ("scrypt", SCRYPT | {"n": 1000}),
        ("scrypt", SCRYPT | {"n": -4}),
        ("scrypt", SCRYPT | {"n": "many"}),
        ("scrypt", SCRYPT | {"salt": "zz"}),
        ("scrypt", PBKDF2),
        ("pbkdf2", PBKDF2 | {"c": 10**12}),
        ("pbkdf2", PBKDF2 | {"dklen": 2**31}),
        ("pbkdf2", PBKDF2 | {"prf": "sha256"}),
        ("argon2", SCRYPT),
    ],
)
def test_a_costly_or_unknown_key_derivation_is_refused_before_it_begins(
    tmp_path: Path, document: dict[str, Any], kdf: str, params: dict[str, object]
) -> None:
    """Before, a file of a kilobyte kept `sapo join --identity` busy for hours, or filled the memory."""
    path = written(tmp_path, document, crypto(document, kdf=kdf, kdfparams=params))
    with pytest.raises(SapoError, match="is not an identity of this version") as caught:
        keystore.load(path, PassphraseSource(tmp_path / "no passphrase is read"))
    assert (caught.value.exit_code, "sapo keys restore" in caught.value.hint) == (4, True)


@pytest.mark.parametrize(
    "fields", [{"version": 4}, {"version": None}, {"crypto": {}}, {"crypto": None}, {"crypto": {"kdf": None}}]
)
def test_a_keystore_without_its_fields_is_refused(
    tmp_path: Path, document: dict[str, Any], fields: dict[str, object]
) -> None:
    path = written(tmp_path, document, fields)
    with pytest.raises(SapoError, match="is not an identity of this version"):
        keystore.load(path, PassphraseSource(tmp_path / "no passphrase is read"))


def test_a_second_spelling_of_a_field_is_not_read(tmp_path: Path, document: dict[str, Any]) -> None:
    """The library that decrypts a keystore reads the last of both, so checking the first proved nothing."""
    other = {"kdf": "scrypt", "kdfparams": SCRYPT | {"n": 4}}
    path = written(tmp_path, document, {"Crypto": crypto(document)["crypto"] | other})
    (tmp_path / "passphrase").write_bytes(PASSPHRASE)
    opened = keystore.load(path, PassphraseSource(tmp_path / "passphrase"))
    assert str(opened.account) == document["account"]


@pytest.mark.parametrize(("kdf", "rounds"), [("scrypt", 2**4), ("pbkdf2", 1000)])
def test_keystores_of_other_wallets_are_opened(
    tmp_path: Path, document: dict[str, Any], kdf: str, rounds: int
) -> None:
    path = written(tmp_path, document, {})
    (tmp_path / "passphrase").write_bytes(PASSPHRASE)
    key = keystore.load(path, PassphraseSource(tmp_path / "passphrase")).account_key
    other: dict[str, Any] = json.loads(json.dumps(EthAccount.encrypt(key, PASSPHRASE, kdf, rounds)))
    (tmp_path / "other").mkdir()
    path = written(tmp_path / "other", document, other | {"x-ethers": {"client": "another wallet"}})
    assert keystore.load(path, PassphraseSource(tmp_path / "passphrase")).account_key == key
