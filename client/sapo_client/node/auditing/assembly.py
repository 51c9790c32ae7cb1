"""Assembly of the auditing part of a node: ledger, audits, settlement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sapo_client.config import LedgerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.imports import collector_paused
from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.auditing.audit import AUDITORS_SHARES, Audit, AuditShares
from sapo_client.node.auditing.auditor import Auditor, AuditorParts, AuditorRole
from sapo_client.node.auditing.chain import ChainRole, NoChain
from sapo_client.node.auditing.faucet import FaucetRequest
from sapo_client.node.auditing.funds import FundsWatch
from sapo_client.node.auditing.registration import Registration
from sapo_client.node.auditing.settlement_services import LedgerRole, LedgerServices, NoLedger
from sapo_client.node.auditing.successions import SuccessionParts, Successions
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.bonds import BondReader
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.statements import Signer, show_signed
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.observe.terminal import say
from sapo_protocol.manifest import Manifest
from sapo_verification.engine import Engine
from sapo_verification.signing.database import SigningDatabase

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient

OpenAuditor = Callable[[AuditorParts], AuditorRole]


def audit_shares(context: NodeContext) -> AuditShares:
    """Return how much this node audits."""
    config = context.config.verification
    if context.config.ledger.audit and context.manifest.audits is None:
        return AUDITORS_SHARES
    return AuditShares(rollouts=config.audit_share, time=config.audit_time)


def open_audit(context: NodeContext, engine: Engine, beacons: Beacons) -> Audit:
    """Return the service that verifies the rollouts in the engine's audit queue."""
    return Audit(engine=engine, beacons=beacons, time_share=audit_shares(context).time)


def require_rpc(config: LedgerConfig, manifest: Manifest) -> None:
    """Raise unless an RPC endpoint of the swarm's chain was named.

    Raises:
        SapoError: none was named (exit code 6).
    """
    if not config.rpc_urls:
        raise SapoError(
            f"this swarm derives its tasks from chain {manifest.chain_id}, but no RPC endpoint was named",
            hint="name one with --rpc URL, with --no-ledger too; ask for it where the manifest is from",
            exit_code=ExitCode.LEDGER,
        )


def open_chain(context: NodeContext) -> LedgerClient | NoChain:
    """Return the chain's client, which every node of a swarm with a chain needs to derive its tasks.

    Raises:
        SapoError: the swarm has a chain and no RPC endpoint was named.
    """
    config, manifest = context.config.ledger, context.manifest
    if not manifest.has_chain:
        return NoChain()
    require_rpc(config, manifest)
    if manifest.difficulty is not None and not config.enabled:
        raise SapoError(
            "the levels of this swarm's tasks follow its ledger, which this node is configured not to use",
            hint="start it without --no-ledger",
            exit_code=ExitCode.LEDGER,
        )
    if manifest.islands is not None and manifest.islands.count is None and not config.enabled:
        raise SapoError(
            "the number of this swarm's islands follows its ledger, which this node is configured not to use",
            hint="start it without --no-ledger",
            exit_code=ExitCode.LEDGER,
        )
    with collector_paused():  # web3, which a swarm without a chain does not need
        from eth_account import Account as EthAccount

        from sapo_client.ledger.fees import GWEI
        from sapo_client.ledger.service import LedgerClient

    return LedgerClient(
        manifest=manifest,
        account=EthAccount.from_key(context.identity.account_key),
        rpc_urls=config.rpc_urls,
        outbox_path=context.data.outbox,
        confirmations=config.confirmations,
        limit_wei=int(config.max_fee_gwei * GWEI),
        report=lambda text: context.events.write("ledger_endpoint", text=text),
        clock=context.clock_watch.certain,
    )


def open_bonds(context: NodeContext, engine: Engine, chain: ChainRole) -> BondReader:
    """Return the service that reads the accounts' bonds, in a swarm whose gate asks for them."""
    return BondReader(
        engine.standing,
        manifest=context.manifest,
        own=context.author.account,
        bonds_before=chain.bonds_before,
        clock=context.clock_watch.certain,
        events=context.events,
    )


def open_funds(context: NodeContext, engine: Engine, chain: LedgerClient | NoChain) -> FundsWatch:
    """Return the service that reads the swarm's treasury, and of an auditor its bond."""
    return FundsWatch(context, chain, lambda: engine.auditors.schedule)


def open_successions(
    context: NodeContext,
    engine: Engine,
    chain: ChainRole,
    gossip: GossipHandlers,
    *,
    reopen: Callable[[], None],
) -> Successions:
    """Return the service that follows what the ledger announces; without a chain it has nothing to do.

    Args:
        reopen: ends the node after its round, to be opened again.
    """
    return Successions(
        SuccessionParts(
            manifest=context.manifest,
            folder=SuccessorFolder(context.data.successors),
            chain=chain,
            in_force=engine.admission.terms,
            transport=context.transport,
            uploads=gossip.uploads,
            events=context.events,
            clock=context.clock_watch.certain,
            node=context.author.node,
            reopen=reopen,
            caught_up=gossip.repeat_requests,
            show=say,
        )
    )


def open_ledger(
    context: NodeContext,
    *,
    engine: Engine,
    gossip: GossipHandlers,
    beacons: Beacons,
    chain: LedgerClient | NoChain,
    locks: Path | None = None,
    open_auditor: OpenAuditor = Auditor,
) -> LedgerRole:
    """Return the services on the ledger, or ``NoLedger`` for a node that writes to no chain.

    Args:
        locks: folder in which is kept what the account approved on this machine in any data directory; None
            if that is not kept.
    """
    config, author = context.config.ledger, context.author
    if isinstance(chain, NoChain) or not config.enabled:
        return NoLedger()
    machine = MachineApprovals(locks, account=author.account, node=author.node) if locks else None
    auditor = open_auditor(
        AuditorParts(
            author=author,
            account_key=context.identity.account_key if config.audit else None,
            transport=context.transport,
            ledger=chain,
            gossip=gossip,
            engine=engine,
            telemetry=context.telemetry,
            clock=context.clock_watch.certain,
            signing=SigningDatabase(context.data.database),
            beacons=beacons,
            machine=machine,
        )
    )
    registration = Registration(
        manifest=context.manifest,
        signer=Signer(context.manifest.chain_id, author.account),
        node=author.node,
        ledger=chain,
        events=context.events,
        clock=context.clock,
        show=show_signed,
    )
    return LedgerServices(
        ledger=chain, registration=registration, auditor=auditor, faucet=_faucet(context, chain)
    )


def _faucet(context: NodeContext, chain: LedgerClient) -> FaucetRequest | None:
    url = context.config.ledger.faucet
    if url is None:
        return None
    return FaucetRequest(
        url=url,
        account=context.author.account,
        ledger=chain,
        events=context.events,
        clock=context.clock_watch.wall,
        show=say,
    )
