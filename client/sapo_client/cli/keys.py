"""`sapo keys`: create, show, back up and restore identities; none is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli import signing
from sapo_client.cli.consent import YesOption, asker
from sapo_client.cli.entry.spelling import Commands
from sapo_client.cli.options import Common, PassphraseFile, RpcOption, command
from sapo_client.cli.render import Grid, Pairs

if TYPE_CHECKING:
    from sapo_client.keystore import IdentityFile

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, show, back up and restore identities."
)
app.add_typer(signing.app, name="signing", cls=Commands)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name in the key folder, or a path.")]
PLAIN_WARNING = "the keys are stored without encryption: anyone who reads the file can act and spend as you"


@command(app)
def new(
    common: Common,
    name: Name,
    passphrase_file: PassphraseFile = None,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Store the keys unencrypted. For testnets.")
    ] = False,
    kdf: Annotated[
        str, typer.Option("--kdf", help="Cost of one passphrase guess: moderate or interactive.")
    ] = "moderate",
) -> None:
    """Create an identity: a node key and the account that is paid."""
    from sapo_client import keystore
    from sapo_client.private_files import refuse_existing

    if kdf not in keystore.COSTS:
        raise typer.BadParameter(f"{kdf} is not one of {', '.join(keystore.COSTS)}", param_hint="--kdf")
    path = keystore.locate(name)
    refuse_existing(path)
    passphrase = None if no_passphrase else _source(common, passphrase_file).read_new(f"identity {path.stem}")
    keystore.create(path, passphrase, cost=keystore.COSTS[kdf])
    if no_passphrase:
        common.output.warn(PLAIN_WARNING)
    _show(common, path, keystore.read(path))
    common.output.note(f"Back it up now, a lost key cannot be recovered: sapo keys backup {quote(name)} FILE")
    show_next(common, name)


@command(app)
def show(
    common: Common,
    name: Name,
    ethereum: Annotated[
        bool, typer.Option("--ethereum", help="Print the account's Ethereum keystore (v3), for wallets.")
    ] = False,
) -> None:
    """Show the public part of an identity, without its passphrase."""
    from sapo_client import keystore
    from sapo_client.errors import ExitCode, SapoError

    path = keystore.locate(name)
    file = keystore.read(path)
    if not ethereum:
        _show(common, path, file)
        return
    if file.ethereum_keystore is None:
        raise SapoError(
            f"the account in {path} is stored without a passphrase, so there is no keystore to print",
            hint="make an identity with a passphrase: sapo keys new NAME",
            exit_code=ExitCode.KEYSTORE,
        )
    document = dict(file.ethereum_keystore)
    common.output.emit(document, json.dumps(document, indent=2))


@command(app, "list")
def list_(common: Common) -> None:
    """List the identities in the key folder."""
    from sapo_client import keystore
    from sapo_client.paths import keys_folder

    found = sorted(keys_folder().glob(f"*{keystore.SUFFIX}"))
    files = [(path, keystore.read(path)) for path in found]
    common.output.emit(
        [_document(path, file) for path, file in files],
        Grid(
            ("name", "account", "node id", "protection"),
            [(path.stem, file.account, file.node_id, file.node_key.protection) for path, file in files],
        ),
    )
    if not files:
        common.output.note(f"No identities in {keys_folder()}; make one: sapo keys new NAME")


@command(app)
def backup(
    common: Common,
    name: Name,
    destination: Annotated[Path, typer.Argument(metavar="FILE", help="File to copy to; must not exist.")],
) -> None:
    """Copy an identity file unchanged: it stays encrypted if it is encrypted."""
    from sapo_client import keystore
    from sapo_client.private_files import write_exclusive

    path = keystore.locate(name)
    file = keystore.read(path)
    write_exclusive(destination, path.read_bytes())
    if not file.encrypted:
        common.output.warn(PLAIN_WARNING)
    common.output.emit({"backup": str(destination)}, str(destination))
    common.output.note(f"To restore it: sapo keys restore {quote(str(destination))} NAME")


@command(app)
def restore(
    common: Common,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `keys backup` made.")],
    name: Name,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Restore an identity from a backup, which is opened first to prove that it is intact."""
    from sapo_client import keystore
    from sapo_client.private_files import refuse_existing, write_exclusive

    path = keystore.locate(name)
    refuse_existing(path)
    keystore.load(source, _source(common, passphrase_file))
    write_exclusive(path, source.read_bytes())
    _show(common, path, keystore.read(path))
    common.output.warn(
        "run one copy only: two nodes with one key sign conflicting messages and lose their reputation"
    )


@command(app)
def rotate(
    common: Common,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The identity whose node key is replaced.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A new name, or a path.")],
    rpc: RpcOption = None,
    passphrase_file: PassphraseFile = None,
    yes: YesOption = False,
) -> None:
    """Replace a node key under the same account; the old key never signs again. The node must be stopped."""
    from sapo_client import keystore
    from sapo_client.account import rotation

    flags = {"ledger.rpc_urls": rpc, "passphrase_file": passphrase_file}
    config = common.resolve(flags).config
    consent = asker(common, yes)
    facts = rotation.rotate(config, keystore.locate(old), keystore.locate(new), consent)
    common.output.emit(facts, Pairs(list(facts.items())))
    common.output.note(f"From now on: sapo join --identity {quote(new)}")
    common.output.note(f"Back it up now: sapo keys backup {quote(new)} FILE")


def _source(common: Common, passphrase_file: Path | None) -> Any:
    from sapo_client.passphrase import PassphraseSource

    return PassphraseSource(passphrase_file or common.resolve().config.passphrase_file)


def _show(common: Common, path: Path, file: IdentityFile) -> None:
    document = _document(path, file)
    common.output.emit(document, Pairs([(name.replace("_", " "), value) for name, value in document.items()]))


def _document(path: Path, file: IdentityFile) -> dict[str, Any]:
    from sapo_client.swarm.peer_id import peer_id_from_key

    return {
        "name": path.stem,
        "node_id": file.node_id,
        "peer_id": peer_id_from_key(bytes.fromhex(file.node_id)),
        "account": file.account,
        "protection": file.node_key.protection,
        "created": file.created,
        "path": str(path),
    }


def show_next(common: Common, name: str) -> None:
    """Print the commands that a new identity is for."""
    common.output.note(f"Then: sapo join --identity {quote(name)} --alone")
    common.output.note(f"or with the link of a swarm: sapo join --identity {quote(name)} 'sapo://...'")


def show_identity(common: Common, identity: str | None) -> None:
    """Print the public part of an identity."""
    from sapo_client import keystore

    path = keystore.locate(identity)
    _show(common, path, keystore.read(path))
