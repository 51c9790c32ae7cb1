"""Invitations: joining a swarm by a link, founding one without a chain, printing links, serving a faucet."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from sapo_client.cli.options import (
    BootstrapOption,
    Common,
    FamiliesOption,
    ForModel,
    LevelOption,
    PassphraseFile,
    SwarmFolder,
    command,
    listed,
)
from sapo_client.cli.render import Pairs

if TYPE_CHECKING:
    from sapo_client.founding.invitation import Invitation
    from sapo_client.founding.invitation_server import FaucetAccess
    from sapo_client.paths import DataDir

Rpc = Annotated[
    list[str] | None,
    typer.Option("--rpc", metavar="URL", help="JSON-RPC endpoint for newcomers; may be repeated."),
]
FaucetOption = Annotated[
    str | None, typer.Option("--faucet", metavar="URL", help="Where newcomers ask for coins.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="URL", help="Where the manifest is served; unset: the link holds it."),
]


def register(app: typer.Typer) -> None:
    """Register the commands in the group ``sapo swarm``."""
    command(app)(new)
    command(app, "link")(link_)
    command(app)(serve)


def accept(common: Common, text: str, data: DataDir) -> None:
    """Show the swarm of an invitation, and bind the data directory to that swarm.

    Raises:
        SapoError: it is malformed, damaged or unreachable, or the directory belongs to another swarm.
    """
    from sapo_client.config_layers import write_kept
    from sapo_client.founding.invitation import read_invitation
    from sapo_client.node.runtime.manifests import take_manifest

    invitation = read_invitation(text)
    for name, value in description(invitation):
        common.output.note(f"{name:<10} {value}")
    if not invitation.proved:
        common.output.warn("compare the swarm id with the one you were given: this source could name another")
    take_manifest(invitation.manifest, data, source="the invitation")
    settings = {
        "ledger.rpc_urls": list(invitation.rpc_urls),
        "ledger.faucet": invitation.faucet,
        "swarm.bootstrap": list(invitation.bootstrap),
    }
    write_kept(data, settings)


def description(invitation: Invitation) -> list[tuple[str, str]]:
    """Return the facts about a swarm that are shown before joining it."""
    manifest = invitation.manifest
    families = ", ".join(f"{each.name} ({each.level})" for each in manifest.suite.families)
    nodes = [*invitation.bootstrap, *manifest.bootstrap]
    return [
        ("swarm", f"{manifest.name} ({manifest.swarm_id})"),
        ("tasks", families),
        ("epochs", f"{manifest.epoch_seconds} s"),
        ("chain", _chain(invitation)),
        ("faucet", invitation.faucet or "none"),
        ("nodes", ", ".join(nodes) or "none is known: others must find this node"),
    ]


def _chain(invitation: Invitation) -> str:
    manifest = invitation.manifest
    if not manifest.has_chain:
        return "none: nothing is paid"
    urls = ", ".join(invitation.rpc_urls) or "no endpoint in the invitation: name one with --rpc"
    return f"{manifest.chain_id} at {urls}; registry {manifest.registry}, ledger {manifest.ledger}"


def new(
    common: Common,
    folder: SwarmFolder,
    name: Annotated[str, typer.Option("--name", help="Display name of the swarm.")] = "swarm",
    epoch_seconds: Annotated[
        int, typer.Option("--epoch-seconds", min=10, metavar="S", help="Length of an epoch.")
    ] = 600,
    bootstrap: BootstrapOption = None,
    at: At = None,
    families: FamiliesOption = None,
    level: LevelOption = None,
    model: ForModel = "bundled",
) -> None:
    """Found a swarm without a chain: write its manifest and print its link. Nothing is paid in it."""
    from sapo_client.founding.chainless import found_without_chain
    from sapo_client.founding.invitation import Invitation, require_addresses
    from sapo_client.founding.tasks import choose_tasks

    require_addresses([("--at", at)], bootstrap or ())
    suite = choose_tasks(families=listed(families), level=level, model=model).suite()
    manifest = found_without_chain(folder, name=name, epoch_seconds=epoch_seconds, suite=suite)
    _show_link(common, folder / "manifest.json", Invitation(manifest, bootstrap=tuple(bootstrap or ())), at)


def link_(
    common: Common,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A manifest file, a link or an address.")],
    rpc: Rpc = None,
    faucet: FaucetOption = None,
    bootstrap: BootstrapOption = None,
    at: At = None,
) -> None:
    """Print the link that joins a swarm: manifest, endpoints, faucet and first nodes in one line."""
    from dataclasses import replace

    from sapo_client.founding.invitation import link, read_invitation, require_addresses

    given = [("--at", at), ("--faucet", faucet), *(("--rpc", url) for url in rpc or ())]
    require_addresses(given, bootstrap or ())
    found = read_invitation(source)
    changed = replace(
        found,
        rpc_urls=tuple(rpc or found.rpc_urls),
        faucet=faucet or found.faucet,
        bootstrap=tuple(bootstrap or found.bootstrap),
    )
    read_invitation(link(changed))  # refuses a link that a client would refuse
    _show_link(common, Path(source) if "://" not in source else None, changed, at)


def serve(
    common: Common,
    folder: SwarmFolder,
    rpc: Rpc = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Identity that pays the gas of a faucet.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    bootstrap: BootstrapOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any free one.")] = 0,
    public: Annotated[
        str | None, typer.Option("--public", metavar="URL", help="Where newcomers reach it.")
    ] = None,
) -> None:
    """Serve a swarm's invitation and faucet over HTTP until stopped, and print the link.

    With --key, newcomers get coins from the swarm's faucet. Put a web server with TLS before it, and name its
    address with --public.
    """
    from sapo_client.founding.invitation import Invitation, require_addresses
    from sapo_client.founding.invitation_server import InvitationServer
    from sapo_client.node.runtime.manifests import read_manifest

    given = [("--public", public), *(("--rpc", url) for url in rpc or ())]
    require_addresses(given, bootstrap or ())
    invitation = Invitation(
        read_manifest(folder / "manifest.json"), tuple(rpc or ()), bootstrap=tuple(bootstrap or ())
    )
    faucet = None if key is None else _faucet(common, folder, key, rpc or [], passphrase_file)
    with InvitationServer((host, port), invitation, faucet=faucet, public=public) as server:
        joins = f"sapo join '{server.link}'"
        common.output.note("Serving until Ctrl-C. Whoever wants to join runs `sapo join` with this link:")
        # twice on one screen a long link is hard to read; a program takes the link alone
        text = joins if sys.stdout.isatty() else server.link
        common.output.emit({"url": server.url, "link": server.link}, text)
        sys.stdout.flush()
        server.serve()


def _faucet(
    common: Common, folder: Path, key: str, rpc: list[str], passphrase_file: Path | None
) -> FaucetAccess:
    from eth_account import Account as EthAccount

    from sapo_client import keystore
    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.founding.invitation_server import FaucetAccess
    from sapo_client.founding.swarm import faucet_of
    from sapo_client.passphrase import PassphraseSource

    if not rpc:
        raise SapoError(
            "a faucet needs an endpoint of its chain", hint="name one with --rpc", exit_code=ExitCode.USAGE
        )
    place = faucet_of(folder)
    source = PassphraseSource(passphrase_file or common.resolve().config.passphrase_file)
    payer = keystore.load(keystore.locate(key), source)
    access = FaucetAccess(rpc, EthAccount.from_key(payer.account_key), place.contract, place.chain_id)
    access.check()
    return access


def _show_link(common: Common, manifest: Path | None, invitation: Invitation, at: str | None) -> None:
    from sapo_client.founding.invitation import link

    text = link(invitation, at=at)
    found = {"manifest": None if manifest is None else str(manifest)}
    document = {**found, "swarm": str(invitation.manifest.swarm_id), "link": text}
    common.output.emit(document, Pairs(list(document.items())))
    common.output.note(f"Then: sapo join '{text}'")
    if not (invitation.bootstrap or invitation.manifest.bootstrap):
        source = "LINK" if manifest is None else quote(str(manifest))
        common.output.note(
            "The link names no node, so only nodes of one local network find each other by it. For others,"
            " print it again with the address at which they reach yours:"
            f" sapo swarm link {source} --bootstrap /ip4/ADDRESS/tcp/PORT/p2p/PEER_ID"
            " (`sapo status` shows your node's addresses)"
        )
