"""Bringing a swarm up: identities, chain, contracts, coins, manifest, settings; no node runs yet."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sapo_client import keystore
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID, ENDPOINT_FILE
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.testnet import plan
from sapo_client.testnet.attacks import ATTACKS
from sapo_client.testnet.plan import Layout, NodeHome, Settings
from sapo_client.testnet.processes import ChildProcess, python, sapo, spawn, wait_until
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

if TYPE_CHECKING:
    from sapo_client.founding.contracts import Deployment

CHAIN_START_SECONDS: Final = 60
"""Importing the execution specification takes a second or two on an idle machine."""

LISTEN_SECONDS: Final = 2.0
"""These identities are minutes old and all on this machine, where a lock guards each of them."""

EAR: Final = "ear"
"""The identity under which an attacker listens and never attacks."""


@dataclass(frozen=True, slots=True)
class Member:
    """One honest node before it runs."""

    home: NodeHome
    identity: Identity
    listen: str
    audit: bool

    @property
    def peer_id(self) -> str:
        """Its name in libp2p."""
        return peer_id_from_key(self.identity.node_id)

    @property
    def address(self) -> str:
        """Where others reach it."""
        return f"{self.listen}/p2p/{self.peer_id}"


@dataclass(frozen=True, slots=True)
class Ground:
    """What the nodes stand on."""

    rpc_url: str
    manifest: Manifest
    members: tuple[Member, ...]
    deployment: Deployment


def create_members(layout: Layout, count: int, auditors: int) -> tuple[Member, ...]:
    """Honest nodes with new keys and free loopback ports; the first ones are the auditors."""
    names = plan.names(plan.NODE_NAMES, count)
    homes = [layout.node(name) for name in names]
    return tuple(
        Member(home, keystore.create(home.identity, None), f"/ip4/127.0.0.1/tcp/{port}", index < auditors)
        for index, (home, port) in enumerate(zip(homes, _free_ports(count), strict=True))
    )


def create_attackers(layout: Layout, count: int) -> dict[str, list[Identity]]:
    """The identities of each attacker: one to listen with, one per kind of attack."""
    created = {}
    for name in plan.names(plan.ATTACKER_NAMES, count):
        home = layout.attacker(name)
        home.markers.mkdir(parents=True)
        kinds = (EAR, *(attack.name for attack in ATTACKS))
        created[name] = [keystore.create(home.identities / f"{kind}.json", None) for kind in kinds]
    return created


def start_chain(layout: Layout, *, tied: bool) -> tuple[ChildProcess, str, Identity]:
    """The embedded chain, its URL, and the account that is rich from its first block.

    Raises:
        SapoError: it does not come up.
    """
    deployer = keystore.create(layout.deployer, None)
    argv = python("sapo_client.ledger.chain", "--data", str(layout.chain), "--fund", str(deployer.account))
    chain = spawn("chain", argv, folder=layout.chain, log=layout.chain_log, tied=tied)
    endpoint = layout.chain / ENDPOINT_FILE
    wait_until(lambda: endpoint.exists() or chain.exit_code() is not None, CHAIN_START_SECONDS)
    if not endpoint.exists():
        raise SapoError(
            f"the chain did not start: {chain.last_words() or 'it said nothing'}",
            hint=f"its log is {layout.chain_log}",
            exit_code=ExitCode.LEDGER,
        )
    return chain, endpoint.read_text().strip(), deployer


def nano_suite() -> Suite:
    """The tasks that a policy of a million parameters can learn within minutes."""
    from sapo_verification.suites import catalogue

    return catalogue.suite("nano", catalogue.NANO_DEFAULT)


def found(
    settings: Settings,
    layout: Layout,
    suite: Suite,
    rpc_url: str,
    deployer: Identity,
    members: tuple[Member, ...],
) -> Ground:
    """The contracts on the chain and the manifest that names them."""
    from eth_account import Account as EthAccount

    from sapo_client.founding.contracts import LedgerTerms, deploy

    genesis_seconds = int(time.time()) + plan.LEAD_SECONDS
    auditors = tuple(member.identity.account for member in members if member.audit)
    contracts = LedgerTerms(
        auditors=auditors,
        quorum=settings.quorum or len(auditors) // 2 + 1,
        genesis_seconds=genesis_seconds,
        epoch_seconds=settings.epoch_seconds,
        challenge_seconds=plan.challenge_seconds(settings.epoch_seconds),
        epoch_budget_points=plan.EPOCH_BUDGET_POINTS,
        points_cap=plan.LIMITS.points_per_epoch,
    )
    deployment = deploy([rpc_url], EthAccount.from_key(deployer.account_key), contracts)
    manifest = Manifest(
        name=f"testnet-{layout.root.name}",
        bootstrap=(members[0].address,),
        chain_id=DEFAULT_CHAIN_ID,
        registry=deployment.registry,
        ledger=deployment.ledger,
        finality_seconds=0,  # every block of the embedded chain is final when it is mined
        genesis_seconds=genesis_seconds,
        epoch_seconds=settings.epoch_seconds,
        suite=suite,
        limits=plan.LIMITS,
    )
    layout.manifest.write_text(manifest_to_json(manifest), encoding="utf-8")
    return Ground(rpc_url, manifest, members, deployment)


def fund(ground: Ground, deployer: Identity, receivers: Sequence[Identity]) -> None:
    """Coins and tokens for every account, from the faucet."""
    from eth_account import Account as EthAccount

    from sapo_client.founding import contracts as deploy

    payer = EthAccount.from_key(deployer.account_key)
    for receiver in receivers:
        deploy.fund([ground.rpc_url], payer, ground.deployment.faucet, receiver.account)


def write_settings(settings: Settings, layout: Layout, ground: Ground) -> None:
    """Each node's config file: everything that its `sapo join` line does not say."""
    for index, member in enumerate(ground.members):
        member.home.config.write_text(
            _toml(
                {
                    "": {"identity": str(member.home.identity), "data_dir": str(member.home.data.root)},
                    "swarm": {
                        "manifest": str(layout.manifest),
                        "listen": [member.listen],
                        "listen_before_signing_seconds": LISTEN_SECONDS,
                    },
                    "learner": {"model": settings.model, "seed": settings.seed + index, "threads": 1},
                    "ledger": {"rpc_urls": [ground.rpc_url], "audit": member.audit},
                }
            ),
            encoding="utf-8",
        )


def join_line(home: NodeHome) -> tuple[str, ...]:
    """The command that starts a node, and starts it again where it was after any end."""
    return sapo("join", "--identity", str(home.identity), "--config", str(home.config))


def _toml(sections: dict[str, dict[str, object]]) -> str:
    lines = []
    for name, entries in sections.items():
        lines += [f"\n[{name}]"] if name else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
    return "\n".join(lines) + "\n"


def _free_ports(count: int) -> list[int]:
    """Free loopback ports, all different: every one is held until the last is found."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def fresh_directory(directory: Path) -> Layout:
    """The layout of a directory that holds nothing yet.

    Raises:
        SapoError: something is there.
    """
    if directory.exists() and any(directory.iterdir()):
        raise SapoError(
            f"{directory} is not empty",
            hint="every testnet is a new swarm: name another directory, or delete this one",
            exit_code=ExitCode.DATA,
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Layout(directory.resolve())
