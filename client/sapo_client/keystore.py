"""The identity file: one Ed25519 node key and the EVM account that is paid for its work.

Both are in one JSON file, because they form one identity: they are backed up, moved or lost together. With a
passphrase the node key is encrypted with argon2id and XSalsa20-Poly1305 (libsodium's secretbox), and the
account is an Ethereum keystore v3 that any wallet imports (`sapo keys show --ethereum` prints it). Without
one both are stored unencrypted.

The file is created with mode 0600 by an exclusive create and is never written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, Literal

from coincurve import PrivateKey
from nacl import pwhash, secret, utils
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import keys_folder, locks_folder
from sapo_client.private_files import read_private, refuse_existing, write_exclusive
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.secp256k1 import account_of

SUFFIX = ".json"
DEFAULT_NAME = "key"
"""Default name of the identity, as in `sapo keys new key`."""

MAX_FILE_BYTES = 64 * 1024  # a hundred times a real identity; anything larger is another file


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one passphrase guess, the same for both keys of the file."""

    opslimit: int
    memlimit_bytes: int
    scrypt_n: int  # with r = 8 and p = 1, scrypt takes 1024 n bytes


MODERATE = Cost(pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE, 2**18)  # 256 MiB each
INTERACTIVE = Cost(
    pwhash.argon2id.OPSLIMIT_INTERACTIVE, pwhash.argon2id.MEMLIMIT_INTERACTIVE, 2**16
)  # 64 MiB
COSTS: dict[str, Cost] = {"moderate": MODERATE, "interactive": INTERACTIVE}


@dataclass(frozen=True, slots=True)
class Identity:
    """One decrypted identity: a node key, and the account that is paid."""

    node_seed: bytes = field(repr=False)
    node_id: NodeId
    account_key: bytes = field(repr=False)
    account: Account
    path: Path

    def lock(self, node: Path | None = None) -> AbstractContextManager[None]:
        """Return a lock that lets one process of this user at a time run as this identity.

        Args:
            node: data directory of the process, if it is a node.
        """
        return _lock(self.path, self.node_id.hex(), node).held()


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class _SealedKey(_Model):
    protection: Literal["argon2id-secretbox"]
    opslimit: int = Field(ge=1, le=pwhash.argon2id.OPSLIMIT_SENSITIVE)
    memlimit_bytes: int = Field(ge=pwhash.argon2id.MEMLIMIT_MIN, le=pwhash.argon2id.MEMLIMIT_SENSITIVE)
    salt: str
    box: str  # nonce and ciphertext


class _PlainKey(_Model):
    protection: Literal["none"]
    key: str


_MAX_SCRYPT_BYTES: Final = 2**30  # as argon2id's: four times what `sapo keys new` and wallets ask for
_MAX_PBKDF2_ROUNDS: Final = 10_000_000  # forty times what wallets ask for

_Hex = Annotated[str, Field(pattern=r"^(0x)?([0-9a-fA-F]{2})*$")]
_Key32 = Literal[32]


class _Wallets(_Model):
    """A part of a keystore that wallets may have extended."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, hide_input_in_errors=True)


class _ScryptParams(_Wallets):
    dklen: _Key32
    n: int = Field(ge=2)
    r: int = Field(ge=1)
    p: int = Field(ge=1)
    salt: _Hex

    @field_validator("n")
    @classmethod
    def _is_power(cls, n: int) -> int:
        if n & (n - 1):
            raise ValueError("scrypt needs a power of two")
        return n


class _Pbkdf2Params(_Wallets):
    dklen: _Key32
    c: int = Field(ge=1, le=_MAX_PBKDF2_ROUNDS)
    prf: Literal["hmac-sha256"]
    salt: _Hex


class _CipherParams(_Wallets):
    iv: str = Field(pattern=r"^(0x)?[0-9a-fA-F]{32}$")


class _Crypto(_Wallets):
    cipher: Literal["aes-128-ctr"]
    cipherparams: _CipherParams
    ciphertext: _Hex
    mac: _Hex


class _ScryptCrypto(_Crypto):
    kdf: Literal["scrypt"]
    kdfparams: _ScryptParams

    @field_validator("kdfparams")
    @classmethod
    def _fits(cls, params: _ScryptParams) -> _ScryptParams:
        work_bytes = 128 * params.n * params.r * params.p  # p times in the same memory, or beside each other
        if work_bytes > _MAX_SCRYPT_BYTES:
            raise ValueError(
                f"scrypt would fill {work_bytes >> 20:,} MiB to try a passphrase,"
                f" more than the limit of {_MAX_SCRYPT_BYTES >> 20:,} MiB"
            )
        return params


class _Pbkdf2Crypto(_Crypto):
    kdf: Literal["pbkdf2"]
    kdfparams: _Pbkdf2Params


class _Wallet(_Wallets):
    """The fields with which a keystore is decrypted; its maker sets the cost of that, up to a limit."""

    version: Literal[3]
    crypto: Annotated[_ScryptCrypto | _Pbkdf2Crypto, Field(discriminator="kdf")]


class _KeystoreV3(_Model):
    protection: Literal["ethereum-keystore-v3"]
    keystore: dict[str, Any]

    @field_validator("keystore")
    @classmethod
    def _is_affordable(cls, keystore: dict[str, Any]) -> dict[str, Any]:
        _Wallet.model_validate(keystore)
        return keystore


class IdentityFile(_Model):
    """Content of an identity file; everything except the two keys is public."""

    format: Literal["sapo-identity"] = "sapo-identity"
    version: Literal[1] = 1
    created: str
    node_id: str = Field(pattern=r"^[0-9a-f]{64}$")
    account: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    node_key: _SealedKey | _PlainKey = Field(discriminator="protection")
    account_key: _KeystoreV3 | _PlainKey = Field(discriminator="protection")

    @property
    def encrypted(self) -> bool:
        """Whether a passphrase is needed to open it."""
        return isinstance(self.node_key, _SealedKey) or isinstance(self.account_key, _KeystoreV3)

    @property
    def ethereum_keystore(self) -> Mapping[str, Any] | None:
        """The account as an Ethereum keystore v3, if it is encrypted."""
        return self.account_key.keystore if isinstance(self.account_key, _KeystoreV3) else None


def locate(identity: str | None) -> Path:
    """Return the file that `--identity` names, by a path or by a name in the key folder.

    By default it is `key` in the key folder, never a file of that name in the working folder.
    """
    if not identity:
        return keys_folder() / f"{DEFAULT_NAME}{SUFFIX}"
    if os.sep in identity or identity.endswith(SUFFIX):
        return Path(identity).expanduser()
    named = keys_folder() / f"{identity}{SUFFIX}"
    here = Path(identity)
    return here if here.is_file() and not named.exists() else named


def create(
    path: Path,
    passphrase: bytes | None,
    *,
    cost: Cost = MODERATE,
    node_seed: bytes | None = None,
    account_key: bytes | None = None,
) -> Identity:
    """Create an identity in a new file; without a passphrase the keys are stored unencrypted.

    Raises:
        SapoError: `path` exists or cannot be written (exit code 4).
    """
    refuse_existing(path)
    seed = node_seed or utils.random(32)
    key = account_key or PrivateKey().secret
    account = account_of(key)
    node_id = NodeId(bytes(SigningKey(seed).verify_key))
    file = IdentityFile(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        node_id=node_id.hex(),
        account=str(account),
        node_key=_seal(seed, passphrase, cost),
        account_key=_to_keystore(key, passphrase, cost),
    )
    write_exclusive(path, file.model_dump_json(indent=2).encode() + b"\n")
    return Identity(node_seed=seed, node_id=node_id, account_key=key, account=account, path=path)


def read(path: Path) -> IdentityFile:
    """Read an identity file without decrypting it.

    Raises:
        SapoError: missing, readable by others, or not an identity (exit code 4).
    """
    content = read_private(path, max_bytes=MAX_FILE_BYTES, missing=_missing(path))
    try:
        return IdentityFile.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "file"
        raise SapoError(
            f"{path} is not an identity of this version ({where}: {problem['msg']})",
            hint="name a file that `sapo keys new` made, or restore a copy with `sapo keys restore`",
            exit_code=ExitCode.KEYSTORE,
        ) from error


def require_free(path: Path, file: IdentityFile) -> None:
    """Raise if a process of this user runs as an identity.

    Raises:
        SapoError: one does (exit code 4).
    """
    _lock(path, file.node_id, None).require_free()


def _lock(path: Path, node_id: str, node: Path | None) -> locks.Lock:
    return locks.Lock(
        locks_folder() / f"{node_id}.lock",
        what=f"identity {path.name}",
        exit_code=ExitCode.KEYSTORE,
        node=node,
    )


def load(path: Path, source: PassphraseSource) -> Identity:
    """Load and decrypt the identity in `path`; the source is read only if the file is encrypted.

    Raises:
        SapoError: missing, readable by others, damaged, or a wrong passphrase (exit code 4).
    """
    file = read(path)
    passphrase = source.read(f"identity {path.stem}") if file.encrypted else b""
    seed = _open_seal(file, passphrase, path)
    key = _from_keystore(file, passphrase, path)
    try:
        account = account_of(key)
    except ValueError as error:
        raise _damaged(path, "its account key is outside the curve's range") from error
    identity = Identity(
        node_seed=seed,
        node_id=NodeId(bytes(SigningKey(seed).verify_key)),
        account_key=key,
        account=account,
        path=path,
    )
    if (identity.node_id.hex(), str(identity.account)) != (file.node_id, file.account):
        raise _damaged(path, "its public part does not belong to its keys")
    return identity


def _missing(path: Path) -> SapoError:
    return SapoError(
        f"there is no identity at {path}",
        hint=f"make one: sapo keys new {quote(_name(path))}",
        exit_code=ExitCode.KEYSTORE,
    )


def _name(path: Path) -> str:
    return path.stem if path.parent == keys_folder() else str(path)


def _damaged(path: Path, detail: str) -> SapoError:
    return SapoError(
        f"{path} is damaged: {detail}",
        hint="restore a copy with `sapo keys restore`",
        exit_code=ExitCode.KEYSTORE,
    )


def _wrong_passphrase(path: Path) -> SapoError:
    return SapoError(
        f"wrong passphrase for {path} (or the file was changed)",
        hint="try again; a lost passphrase cannot be recovered, only a backup without it helps",
        exit_code=ExitCode.KEYSTORE,
    )


def _stretch(passphrase: bytes, salt: bytes, opslimit: int, memlimit_bytes: int) -> bytes:
    size = secret.SecretBox.KEY_SIZE
    return pwhash.argon2id.kdf(size, passphrase, salt, opslimit=opslimit, memlimit=memlimit_bytes)


def _seal(seed: bytes, passphrase: bytes | None, cost: Cost) -> _SealedKey | _PlainKey:
    if passphrase is None:
        return _PlainKey(protection="none", key=seed.hex())
    salt = utils.random(pwhash.argon2id.SALTBYTES)
    key = _stretch(passphrase, salt, cost.opslimit, cost.memlimit_bytes)
    return _SealedKey(
        protection="argon2id-secretbox",
        opslimit=cost.opslimit,
        memlimit_bytes=cost.memlimit_bytes,
        salt=salt.hex(),
        box=bytes(secret.SecretBox(key).encrypt(seed)).hex(),
    )


def _open_seal(file: IdentityFile, passphrase: bytes, path: Path) -> bytes:
    sealed = file.node_key
    if isinstance(sealed, _PlainKey):
        return _key_from_hex(sealed.key, path)
    try:
        key = _stretch(passphrase, bytes.fromhex(sealed.salt), sealed.opslimit, sealed.memlimit_bytes)
        return secret.SecretBox(key).decrypt(bytes.fromhex(sealed.box))
    except CryptoError as error:
        raise _wrong_passphrase(path) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _key_from_hex(text: str, path: Path) -> bytes:
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise _damaged(path, "a key is not hexadecimal") from error
    if len(key) != 32:
        raise _damaged(path, f"a key has {len(key)} bytes instead of 32")
    return key


def _to_keystore(key: bytes, passphrase: bytes | None, cost: Cost) -> _KeystoreV3 | _PlainKey:
    if passphrase is None:
        return _PlainKey(protection="none", key="0x" + key.hex())
    from eth_account import Account as EthAccount

    keystore = EthAccount.encrypt(key, passphrase, kdf="scrypt", iterations=cost.scrypt_n)
    return _KeystoreV3(protection="ethereum-keystore-v3", keystore=json.loads(json.dumps(keystore)))


def _from_keystore(file: IdentityFile, passphrase: bytes, path: Path) -> bytes:
    sealed = file.account_key
    if isinstance(sealed, _PlainKey):
        return _key_from_hex(sealed.key, path)
    from eth_account import Account as EthAccount

    # Only what was checked: a second spelling of a field, such as "Crypto", is not read.
    checked = _Wallet.model_validate(sealed.keystore).model_dump()
    try:
        return bytes(EthAccount.decrypt(checked, passphrase))
    except ValueError as error:
        raise _wrong_passphrase(path) from error
