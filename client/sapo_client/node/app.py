"""The composition root: opens what a node is made of, starts its services, stops them in order.

Starting order: manifest and suite, stores, checkers and learner (slow, at once), transport, ledger.
Stopping order: the round ends, the policy is saved, everything else is cancelled.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import trio

from sapo_client import locks
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.key_status import require_in_use
from sapo_client.keystore import Identity
from sapo_client.learner.backend import LearnerCrashed
from sapo_client.ledger.fees import GWEI
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.audit import AUDITORS_SHARES, Audit, AuditShares
from sapo_client.node.auditing.auditor import Auditor, AuditorParts
from sapo_client.node.auditing.registration import Registration
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.proofs import Proofs
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.runtime.backends import open_backend
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock, wall_clock
from sapo_client.node.runtime.host import open_transport
from sapo_client.node.runtime.manifests import require_same_suite, settle_manifest
from sapo_client.node.runtime.metrics_poller import MetricsPoller
from sapo_client.node.runtime.reports import Reports
from sapo_client.node.runtime.shutdown import Shutdown
from sapo_client.node.runtime.statements import Signer, Words, lines, statement_words
from sapo_client.node.runtime.supervisor import Service, Supervisor, find_sapo_error
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.runtime.upkeep import keep_log_short, start_up_set_aside
from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.node.training.judge_client import JudgeClient
from sapo_client.node.training.rounds import Author, RoundParts, Rounds
from sapo_client.observe import control
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.reports import keep_status
from sapo_client.observe.status import RoundSummary
from sapo_client.paths import DataDir
from sapo_client.swarm.peer_id import key_from_peer_id
from sapo_client.swarm.transport import BugReport, Transport, TransportError
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.equivocations import ProofBook
from sapo_verification.admission.rollouts import Admission
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.payable import PayableCount
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.origins import Origins
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.sampling.sampler import Sampler, SamplingPolicy
from sapo_verification.screens.screens import Screens
from sapo_verification.signing.database import SigningDatabase, SlotShare
from sapo_verification.verifier import Verifier

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_CHECKPOINT_PATIENCE_SECONDS = 60.0
"""A drain does not wait longer for the last checkpoint; the one before it is intact."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What one start asks for, beside the configuration.

    Attributes:
        fresh: begin with the configured model although checkpoints exist.
        steps: stop after this many steps; none runs on.
    """

    fresh: bool = False
    steps: int | None = None


def run_node(
    config: Config, identity: Identity, options: RunOptions, show: Callable[[RoundSummary], None]
) -> int:
    """Runs a node until it is stopped; returns its exit code.

    Args:
        show: takes the summary of each round.

    Raises:
        SapoError: it cannot run, and its user can mend that.
    """
    data = DataDir(config.data_dir).create()
    with locks.lock(data.lock, what=f"data directory {data.root}"), identity.lock():
        require_in_use(data, identity)
        manifest = settle_manifest(config.swarm.manifest, data)
        data.config.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        require_same_suite(manifest)
        host = partial(open_transport, config, identity, manifest)
        node = Node(config, identity, options, manifest, data, host, show)
        try:
            return trio.run(node.run)
        except BaseExceptionGroup as group:
            if (told := find_sapo_error(group)) is not None:
                raise told from group
            raise


class Node:
    """One node's parts, wired together."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        options: RunOptions,
        manifest: Manifest,
        data: DataDir,
        open_transport: Callable[[BugReport], Transport],
        show: Callable[[RoundSummary], None],
        clock: Clock = wall_clock,
    ) -> None:
        self._config = config
        self._identity = identity
        self._options = options
        self._show = show
        self._manifest = manifest
        self._data = data
        self._clock = clock
        self._shutdown = Shutdown()
        self._author = Author(identity.node_seed, identity.node_id, identity.account)
        # One seed for every node would make them all choose alike.
        self._rng = random.Random(f"{config.learner.seed}:{identity.node_id}")
        self._events = EventLog(
            data.events, max_bytes=config.observe.events_max_bytes, keep=config.observe.events_keep
        )
        metrics = NodeMetrics(
            version=version("sapo-swarm"), swarm_id=str(manifest.swarm_id), node_id=str(identity.node_id)
        )
        self._telemetry = Telemetry(self._events, metrics, manifest.suite, identity.account)
        self._supervisor = Supervisor(self._events)
        self._transport = open_transport(self._supervisor.note_bug)
        self._wire()

    def _wire(self) -> None:
        config, manifest, database = self._config, self._manifest, self._data.database
        self._ledger = self._open_ledger()
        self._reputation = Reputation(database)
        self._certificates = CertificateBook(manifest, database)
        self._admission = Admission(manifest, self._certificates)
        self._pool = Pool(database, PoolLimits(), self._reputation)
        self._checkers = CheckerPool(manifest.suite, workers=config.verification.workers)
        ask = self._ledger.block_hash_before if self._ledger else None
        self._beacons = Beacons(manifest, ask, self._events)
        self._payable = PayableCount()
        self._screens = Screens(manifest.suite.families, secrets.token_bytes(32), self._identity.account)
        self._telemetry.on_verified.append(self._payable.record)
        self._verifier = Verifier(
            manifest.swarm_id, self._checkers.check, self._beacons.known, self._reputation, self._telemetry,
            self._screens,
        )  # fmt: skip
        self._policy = SamplingPolicy(
            local_groups=config.learner.local_groups,
            external_groups=config.learner.external_groups if config.learner.trains else 0,
            account_cap=config.verification.account_cap,
            newcomer_cap=config.verification.newcomer_cap,
            network_cap=config.verification.network_cap,
            strategy=config.sampler.strategy,
        )
        self._heard = EnvelopeStore(database)
        self._origins = Origins(database)
        self._signing = SigningDatabase(database)
        self._share = SlotShare.parse(config.swarm.slot_share)
        self._learner = open_backend(
            config.learner, self._data.learner, seed=self._rng.getrandbits(32), fresh=self._options.fresh
        )
        self._gossip = GossipHandlers(
            manifest, self._transport, self._certificates, self._admission, self._pool, self._heard,
            self._telemetry, self._identity.account,
            self._own_certificate(), self._clock, self._origins, self._open_proofs(), self._screens,
        )  # fmt: skip
        self._doppelganger = Doppelganger(self._doppelganger_parts())
        self._gossip.on_own = self._doppelganger.hear
        self._rounds = Rounds(self._round_parts(), self._show)
        self._archive = ContributionStore(database, manifest.swarm_id)
        self._auditor = self._open_auditor()

    async def run(self) -> int:
        """The node's whole life."""
        self._data.clean_shutdown.unlink(missing_ok=True)
        async with self._services():
            await self._rounds_until_stop()
            deadline = trio.current_time() + _CHECKPOINT_PATIENCE_SECONDS
            with trio.CancelScope(deadline=deadline, shield=True):
                await self._save()
        self._data.clean_shutdown.touch()
        self._events.write("stopped", step=self._learner.step, why=self._shutdown.why)
        self._events.close()
        return self._shutdown.exit_code

    @asynccontextmanager
    async def _services(self) -> AsyncIterator[None]:
        """Everything that runs beside the rounds."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shutdown.watch_signals)
            await self._start_slow_parts(nursery)
            self._gossip.restore()
            await nursery.start(self._serve_control)
            self._announce()
            nursery.start_soon(self._keep("gossip", self._gossip.run))
            nursery.start_soon(self._keep("audit", self._audit().run))
            nursery.start_soon(self._keep("upkeep", partial(keep_log_short, self._data.database)))
            nursery.start_soon(self._keep("watch", self._watch().run))
            if self._ledger is not None and self._auditor is not None:
                nursery.start_soon(self._keep("ledger", self._run_ledger))
                nursery.start_soon(self._keep("registration", self._registration(self._ledger).run))
                nursery.start_soon(self._keep("auditor", self._auditor.run))
            with start_up_set_aside():
                yield
            nursery.cancel_scope.cancel()

    async def _start_slow_parts(self, nursery: trio.Nursery) -> None:
        """Starts what imports for seconds; none waits for another."""
        async with trio.open_nursery() as starting:
            starting.start_soon(nursery.start, self._checkers.run)
            starting.start_soon(nursery.start, self._learner.run)
            starting.start_soon(self._start_transport, nursery)

    async def _start_transport(self, nursery: trio.Nursery) -> None:
        try:
            await nursery.start(self._transport.run)
        except TransportError as error:
            raise SapoError(
                str(error),
                hint="another program may hold the port: choose one with --listen /ip4/0.0.0.0/tcp/PORT",
                exit_code=ExitCode.NETWORK,
            ) from error

    def _keep(self, name: str, service: Service) -> Service:
        return partial(self._supervisor.keep, name, service)

    async def _rounds_until_stop(self) -> None:
        """Trains until the steps are done or the node is to stop; a hurried stop breaks the round off."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_hurried, nursery.cancel_scope)
            await self._train()
            nursery.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: trio.CancelScope) -> None:
        await self._shutdown.hurried.wait()
        scope.cancel()

    async def _train(self) -> None:
        steps = self._options.steps
        last_step = None if steps is None else self._learner.step + steps
        run = partial(self._rounds.run, last_step, self._shutdown.draining)
        await self._supervisor.keep("rounds", run)

    async def _save(self) -> None:
        try:
            await self._learner.checkpoint()
        except LearnerCrashed as error:
            self._events.write("checkpoint_failed", why=str(error))
        keep_status(self._data.status, self._reports().status())

    async def _run_ledger(self) -> None:
        """Sees that chain and manifest agree, registers, then sends what is queued."""
        assert self._ledger is not None
        await self._ledger.check()
        await self._registration(self._ledger).look()
        await self._ledger.run()

    def _registration(self, ledger: LedgerClient) -> Registration:
        signer = Signer(self._manifest.chain_id, self._author.account)
        return Registration(
            self._manifest, signer, self._author.node, ledger, self._events, self._clock, _show_signed
        )

    def _own_certificate(self) -> OwnCertificate:
        identity, domain = self._identity, self._manifest.binding_domain
        return OwnCertificate(
            identity.node_seed,
            identity.account_key,
            self._manifest,
            self._clock,
            show=lambda binding: _show_signed(statement_words(binding, domain)),
        )

    def _watch(self) -> MetricsPoller:
        ratings = Ratings(self._certificates, self._reputation)
        return MetricsPoller(
            self._manifest, self._transport, self._ledger, ratings, self._telemetry, self._clock
        )

    async def _serve_control(self, task_status: TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        handlers = control.Handlers(
            reports=self._reports().by_name(),
            is_draining=self._shutdown.draining.is_set,
            stop=lambda finish: self._shutdown.request("sapo stop", ExitCode.DONE, finish=finish),
            metrics=self._telemetry.metrics.render if self._config.observe.metrics else None,
        )
        await control.serve(
            self._data, handlers, port=self._config.observe.control_port, task_status=task_status
        )

    def _announce(self) -> None:
        self._events.write(
            "node_started",
            node=self._author.node,
            account=self._author.account,
            peer_id=self._transport.peer_id,
            addresses=list(self._transport.addresses),
            swarm=self._manifest.swarm_id,
            step=self._learner.step,
            audit=self._config.ledger.audit,
            pid=os.getpid(),
        )
        print(f"joined {self._manifest.name} as {self._author.node.hex()[:12]}", file=sys.stderr)
        for address in self._transport.addresses:
            print(f"  listening on {address}{_on_all_interfaces(address)}", file=sys.stderr)

    def _reports(self) -> Reports:
        return Reports(
            config=self._config,
            manifest=self._manifest,
            author=self._author,
            transport=self._transport,
            node_of_peer=_node_of_peer,
            certificates=self._certificates,
            reputation=self._reputation,
            pool=self._pool,
            rounds=self._rounds,
            step=lambda: self._learner.step,
            telemetry=self._telemetry,
            ledger=self._ledger if self._config.ledger.enabled else None,
            points=lambda: self._auditor.points if self._auditor else 0,
            shutdown=self._shutdown,
            clock=self._clock,
            started_seconds=self._clock(),
        )

    def _audit(self) -> Audit:
        config = self._config.verification
        shares = AuditShares(config.audit_share, config.audit_time)
        return Audit(
            self._gossip.audit_queue, self._verifier, self._pool, self._reputation, self._beacons,
            AUDITORS_SHARES if self._config.ledger.audit else shares, self._events, self._rng,
        )  # fmt: skip

    def _round_parts(self) -> RoundParts:
        sampler = Sampler(
            self._pool, self._reputation, self._verifier, self._policy, self._origins.network_of
        )
        return RoundParts(
            manifest=self._manifest,
            author=self._author,
            policy=self._policy,
            completions=min(self._config.learner.completions, self._manifest.limits.max_completions),
            signing=self._signing,
            share=self._share,
            doppelganger=self._doppelganger,
            beacons=self._beacons,
            checkers=self._checkers,
            learner=self._learner,
            admission=self._admission,
            verifier=self._verifier,
            pool=self._pool,
            heard=self._heard,
            sampler=sampler,
            gossip=self._gossip,
            telemetry=self._telemetry,
            clock=self._clock,
            rng=self._rng,
            canary=self._canary(sampler),
            judge=self._judge(),
        )

    def _canary(self, sampler: Sampler) -> Canary:
        config = self._config.canary
        parts = CanaryParts(
            learner=self._learner,
            checkers=self._checkers,
            sampler=sampler,
            pool=self._pool,
            events=self._events,
            file=CanaryFile(self._data.learner / "canary.json", fresh=self._options.fresh),
            secret=self._author.seed,
            families=len(self._manifest.suite.families),
        )
        every_rounds = config.every_rounds if self._config.learner.trains else 0
        return Canary(CanarySettings(every_rounds, config.items, config.tolerance), parts)

    def _judge(self) -> JudgeClient:
        config = self._config
        return JudgeClient(
            self._manifest, self._author.account, self._learner, self._checkers, self._events,
            every=config.judge.every, temperature=config.learner.temperature,
        )  # fmt: skip

    def _doppelganger_parts(self) -> DoppelgangerParts:
        return DoppelgangerParts(
            manifest=self._manifest,
            node=self._author.node,
            account=self._author.account,
            signing=self._signing,
            share=self._share,
            transport=self._transport,
            telemetry=self._telemetry,
            clock=self._clock,
            seconds=self._config.swarm.listen_before_signing_seconds,
            stopped_clean=self._data.clean_shutdown.exists(),
        )

    def _open_proofs(self) -> Proofs:
        own = self._identity.account
        book = ProofBook(self._manifest, self._certificates, self._reputation, own, self._data.database)
        return Proofs(self._manifest, self._transport, book, self._heard, self._telemetry, own, self._clock)

    def _open_ledger(self) -> LedgerClient | None:
        """The chain: every node reads it, for tasks follow from its blocks; who takes part also writes."""
        config = self._config.ledger
        if not self._manifest.has_chain:
            return None
        if not config.rpc_urls:
            raise SapoError(
                f"this swarm derives its tasks from chain {self._manifest.chain_id}, but no RPC was named",
                hint="name one with --rpc URL; with --no-ledger the chain is read, never written to",
                exit_code=ExitCode.LEDGER,
            )
        from eth_account import Account as EthAccount

        return LedgerClient(
            manifest=self._manifest,
            account=EthAccount.from_key(self._identity.account_key),
            rpc_urls=config.rpc_urls,
            outbox_path=self._data.root / "outbox.sqlite",
            confirmations=config.confirmations,
            limit_wei=int(config.max_fee_gwei * GWEI),
            tell=lambda text: self._events.write("ledger_endpoint", text=text),
        )

    def _open_auditor(self) -> Auditor | None:
        if self._ledger is None or not self._config.ledger.enabled:
            return None
        return Auditor(
            AuditorParts(
                manifest=self._manifest,
                author=self._author,
                account_key=self._identity.account_key if self._config.ledger.audit else None,
                transport=self._transport,
                ledger=self._ledger,
                gossip=self._gossip,
                certificates=self._certificates,
                archive=self._archive,
                payable=self._payable,
                telemetry=self._telemetry,
                clock=self._clock,
            )
        )


def _show_signed(words: Words) -> None:
    """What the account signs, for whoever watches: nobody is asked while a node runs."""
    print("this account signs:", *lines(words), sep="\n", file=sys.stderr)


def _on_all_interfaces(address: str) -> str:
    """What a person must know to pass an unspecified address on."""
    everywhere = address.startswith(("/ip4/0.0.0.0/", "/ip6/::/"))
    return " (every interface: others dial this machine's own address)" if everywhere else ""


def _node_of_peer(peer_id: str) -> NodeId | None:
    key = key_from_peer_id(peer_id)
    return NodeId(key) if key else None
