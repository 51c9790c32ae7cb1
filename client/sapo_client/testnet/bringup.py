"""Preparing a swarm: identities, chain, contracts, coins, manifest, settings; no node runs yet."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sapo_client import keystore
from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding import defaults
from sapo_client.founding.gates import account_exit_seconds, gate_of, unit_of
from sapo_client.founding.invitation import Invitation, link
from sapo_client.founding.tasks import difficulty_of
from sapo_client.keystore import Identity
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID, ENDPOINT_FILE
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.testnet import plan
from sapo_client.testnet.attacks import ATTACKS
from sapo_client.testnet.plan import Layout, NodeHome, Settings
from sapo_client.testnet.processes import ChildProcess, free_ports, python, sapo, spawn, wait_until
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.settlement import quorum_size
from sapo_protocol.suite import Suite

if TYPE_CHECKING:
    from sapo_client.founding.contracts import Deployment

CHAIN_START_SECONDS: Final = 60
"""Timeout, seconds: importing the execution specification takes one or two on an idle machine."""

_LYING_NODE: Final = """
from sapo_client.cli.app import main
from sapo_client.node.roles import Roles
from sapo_client.testnet.late_auditor import LateAuditor
main(Roles(open_auditor=LateAuditor))
"""

LISTEN_SECONDS: Final = 2.0
"""Time for which a node listens for a second node with its keys before it signs. It is short, because the
identities are new and locks on this machine protect them."""

MANY_TASKS: Final[Mapping[str, object]] = {
    "local_groups": 28,
    "completions": 2,
    "demonstrations_per_step": 32,
    "demonstration_rate": 1.4e-3,
}
"""Learner settings of nodes that start from different models: 32 tasks a round with two answers each, instead
of eight with eight. They learn from others' text, and right answers to one task are similar. There are few
texts in the minutes of a testnet: half as many texts in a supervised step give twice as many steps. The
learning rate is proportional to the square root of the texts in a step; otherwise the policy forgets more
(docs/experiment-notes.md)."""

MANY_TEXTS: Final[Mapping[str, object]] = {"demonstrations": 256}
"""Settings of the same nodes: more right answers of others per step than by default."""


@dataclass(frozen=True, slots=True)
class Member:
    """One honest node before it runs."""

    home: NodeHome
    identity: Identity
    listen: str
    audit: bool
    lies: bool = False

    @property
    def peer_id(self) -> str:
        """Its libp2p peer id."""
        return peer_id_from_key(self.identity.node_id)

    @property
    def address(self) -> str:
        """Multiaddress at which others reach it."""
        return f"{self.listen}/p2p/{self.peer_id}"


@dataclass(frozen=True, slots=True)
class SwarmSetup:
    """Everything that the nodes need before they start."""

    rpc_url: str
    manifest: Manifest
    members: tuple[Member, ...]
    deployment: Deployment


def create_members(layout: Layout, count: int, auditors: int, liars: int = 0) -> tuple[Member, ...]:
    """Create nodes with new keys and free loopback ports: first the auditors, the last of them liars."""
    names = plan.names(plan.NODE_NAMES, count)
    homes = [layout.node(name) for name in names]
    return tuple(
        Member(
            home,
            keystore.create(home.identity, None),
            f"/ip4/127.0.0.1/tcp/{port}",
            audit=index < auditors,
            lies=auditors - liars <= index < auditors,
        )
        for index, (home, port) in enumerate(zip(homes, free_ports(count), strict=True))
    )


def create_attackers(layout: Layout, count: int) -> dict[str, list[Identity]]:
    """Create the identities of each attacker: one that listens, and one per kind of attack."""
    created = {}
    for name in plan.names(plan.ATTACKER_NAMES, count):
        home = layout.attacker(name)
        home.markers.mkdir(parents=True)
        kinds = (plan.LISTENER, *(attack.name for attack in ATTACKS))
        created[name] = [keystore.create(home.identities / f"{kind}.json", None) for kind in kinds]
    return created


def start_chain(layout: Layout, *, tied: bool) -> tuple[ChildProcess, str, Identity]:
    """Start the embedded chain; return it, its URL, and the account that holds coins from its first block.

    Raises:
        SapoError: it does not start.
    """
    deployer = keystore.create(layout.deployer, None)
    argv = python("sapo_client.ledger.chain", "--data", str(layout.chain), "--fund", str(deployer.account))
    chain = spawn("chain", argv, folder=layout.chain, log=layout.chain_log, tied=tied)
    endpoint = layout.chain / ENDPOINT_FILE
    wait_until(lambda: endpoint.exists() or chain.exit_code() is not None, CHAIN_START_SECONDS)
    if not endpoint.exists():
        raise SapoError(
            f"the chain did not start: {chain.log_tail() or 'its log is empty'}",
            hint=f"its log is {layout.chain_log}",
            exit_code=ExitCode.LEDGER,
        )
    return chain, endpoint.read_text().strip(), deployer


def found(
    settings: Settings,
    layout: Layout,
    suite: Suite,
    rpc_url: str,
    deployer: Identity,
    members: tuple[Member, ...],
) -> SwarmSetup:
    """Deploy the contracts, and write the manifest that names them."""
    from eth_account import Account as EthAccount

    from sapo_client.founding.contracts import LedgerTerms, deploy

    genesis_seconds = int(time.time()) + plan.LEAD_SECONDS
    auditors = tuple(member.identity.account for member in members if member.audit)
    contracts = LedgerTerms(
        auditors=auditors,
        quorum=settings.quorum or quorum_size(len(auditors)),
        genesis_seconds=genesis_seconds,
        epoch_seconds=settings.epoch_seconds,
        challenge_seconds=defaults.challenge_seconds(settings.epoch_seconds),
        epoch_budget_points=defaults.EPOCH_BUDGET_POINTS,
        points_cap=defaults.LIMITS.points_per_epoch,
        account_exit_seconds=(
            None if settings.bond is None else account_exit_seconds(settings.epoch_seconds, 0)
        ),
    )
    deployment = deploy([rpc_url], EthAccount.from_key(deployer.account_key), contracts)
    difficulty = difficulty_of(suite)
    gate = gate_of(deployment.account_bond, settings.bond, contracts.account_exit_seconds)
    manifest = Manifest(
        name=f"testnet-{layout.root.name}",
        bootstrap=(members[0].address,),
        chain_id=DEFAULT_CHAIN_ID,
        registry=deployment.registry,
        ledger=deployment.ledger,
        finality_seconds=0,  # a block of the embedded chain is final as soon as it is mined
        genesis_seconds=genesis_seconds,
        epoch_seconds=settings.epoch_seconds,
        suite=suite,
        limits=defaults.LIMITS,
        version=1 if difficulty is None and gate is None and settings.islands is None else 2,
        gate=gate,
        difficulty=difficulty,
        islands=settings.islands,
    )
    layout.manifest.write_text(manifest_to_json(manifest), encoding="utf-8")
    facts = json.dumps(asdict(deployment), indent=2, default=str)
    layout.deployment.write_text(facts + "\n", encoding="utf-8")
    return SwarmSetup(rpc_url, manifest, members, deployment)


def fund(setup: SwarmSetup, deployer: Identity, receivers: Sequence[Identity]) -> None:
    """Send coins and tokens from the faucet to every account."""
    from eth_account import Account as EthAccount

    from sapo_client.founding import contracts as deploy
    from sapo_client.ledger.rpc import Rpc

    payer, rpc = EthAccount.from_key(deployer.account_key), Rpc([setup.rpc_url])
    for receiver in receivers:
        deploy.fund(rpc, payer, setup.deployment.faucet, receiver.account)


def bond(setup: SwarmSetup, deployer: Identity, owners: Sequence[Identity], tokens: float | None) -> None:
    """Bond a whole unit for every account, in a swarm that requires a bond."""
    from eth_account import Account as EthAccount

    from sapo_client.founding.contracts import bond_accounts
    from sapo_client.founding.deployer import Deployer
    from sapo_client.ledger.rpc import Rpc

    if tokens is None or not owners:
        return
    payer, rpc = Deployer(EthAccount.from_key(deployer.account_key)), Rpc([setup.rpc_url])
    bond_accounts(rpc, payer, setup.deployment, [owner.account for owner in owners], unit_of(tokens))


def write_settings(settings: Settings, layout: Layout, setup: SwarmSetup) -> None:
    """Write each node's configuration file: all settings that are not on its `sapo join` command line."""
    for index, member in enumerate(setup.members):
        member.home.config.write_text(
            _toml(
                {
                    "": {"identity": str(member.home.identity), "data_dir": str(member.home.data.root)},
                    "swarm": {
                        "manifest": str(layout.manifest),
                        "listen": [member.listen],
                        "mdns": False,
                        "listen_before_signing_seconds": LISTEN_SECONDS,
                    },
                    "learner": {
                        "model": settings.model_of(index),
                        "seed": settings.seed + index,
                        "threads": 1,
                        **(MANY_TASKS if settings.starts_differ else {}),
                    },
                    "sampler": {**MANY_TEXTS} if settings.starts_differ else {},
                    "ledger": {"rpc_urls": [setup.rpc_url], "audit": member.audit},
                }
            ),
            encoding="utf-8",
        )


def start_inviting(layout: Layout, setup: SwarmSetup, *, tied: bool) -> tuple[ChildProcess, str]:
    """Start the server of the swarm's invitation and faucet; return it, and the link to the swarm."""
    [port] = free_ports(1)
    served = ("swarm", "serve", str(layout.root), "--rpc", setup.rpc_url)
    argv = sapo(*served, "--key", str(layout.deployer), "--port", str(port))
    child = spawn("invitation", argv, folder=layout.invitation, log=layout.invitation / "log.txt", tied=tied)
    return child, link(Invitation(setup.manifest), at=f"http://127.0.0.1:{port}/")


def join_line(member: Member) -> tuple[str, ...]:
    """Return the command that starts a node, and resumes it after any exit."""
    join = ("join", "--identity", str(member.home.identity), "--config", str(member.home.config))
    return (sys.executable, "-c", _LYING_NODE, *join) if member.lies else sapo(*join)


def _toml(sections: dict[str, dict[str, object]]) -> str:
    lines = []
    for name, entries in sections.items():
        lines += [f"\n[{name}]"] if name else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
    return "\n".join(lines) + "\n"


def fresh_directory(directory: Path) -> Layout:
    """Return the layout of a new or empty directory.

    Raises:
        SapoError: the directory is not empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise SapoError(
            f"{directory} is not empty",
            hint="every testnet is a new swarm: name another directory, or delete this one",
            exit_code=ExitCode.DATA,
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Layout(directory.resolve())
