"""Whole nodes for tests: real checkers, a real learner process and real databases on an in-memory network."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import trio
from support.ledger import BOND_UNIT, Contracts, found
from support.swarm import Identity as Person
from support.swarm import make_manifest

from sapo_client import keystore
from sapo_client.config import (
    Config,
    JudgeConfig,
    LearnerConfig,
    LedgerConfig,
    SamplerConfig,
    SwarmConfig,
    VerificationConfig,
)
from sapo_client.config_layers import Setting
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.roles import NO_ROLES, Roles
from sapo_client.node.runtime.clock import Clock, steady_clock, wall_clock
from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.events import Event, read_events
from sapo_client.observe.status import RoundSummary
from sapo_client.paths import DataDir
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import BugReport, Transport
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.gate import BondGate

PATIENCE_SECONDS: Final = 120
"""A hang is a failure; a machine that is busy with other things is none."""

LOOK_SECONDS: Final = 0.05

LOCAL_GROUPS: Final = 2
EXTERNAL_GROUPS: Final = 2
COMPLETIONS: Final = 6

Events = list[Event]


def manifest_of(suite: Suite, *, epoch_seconds: int = 3600, slots: int = 100_000) -> Manifest:
    """Return the manifest of a swarm without a chain whose genesis is one second ago."""
    limits = Limits(slots_per_epoch=slots, max_completions=COMPLETIONS, points_per_epoch=slots)
    genesis = int(time.time()) - 1
    return make_manifest(suite=suite, genesis_seconds=genesis, epoch_seconds=epoch_seconds, limits=limits)


def found_now(
    folder: Path, suite: Suite, *, epoch_seconds: int = 36_000, **terms: Any
) -> tuple[Contracts, Manifest]:
    """Found a swarm on an embedded chain whose clock shows the present.

    Args:
        terms: further ones of the ledger.
    """
    genesis = int(time.time()) - 60
    limits = manifest_of(suite).limits
    contracts = found(
        folder / "chain.sqlite",
        genesis_seconds=genesis,
        epoch_seconds=epoch_seconds,
        points_cap=limits.points_per_epoch,
        **terms,
    )
    contracts.chain.now_seconds = time.time()
    changes: dict[str, Any] = {}
    if (account_bond := contracts.deployment.account_bond) is not None:
        changes["gate"] = BondGate(account_bond, BOND_UNIT, terms["account_exit_seconds"])
    manifest = contracts.manifest(
        suite=suite, genesis_seconds=genesis, epoch_seconds=epoch_seconds, limits=limits, **changes
    )
    return contracts, manifest


async def until(done: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Return once a condition holds.

    Raises:
        trio.TooSlowError: it does not hold in time.
    """
    with trio.fail_after(seconds):
        while not done():
            await trio.sleep(LOOK_SECONDS)


class Addressed(Protocol):
    """A node that others can dial."""

    @property
    def address(self) -> str:
        """Its full multiaddr."""


@dataclass
class Home:
    """A node's identity, configuration and data directory."""

    root: Path
    number: int
    manifest: Manifest
    model: Path
    learner: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=lambda: {"text_use": "reinforce"})
    listen_seconds: float = 0.0
    judge_every: int = 0
    settings: tuple[Setting, ...] = ()
    ledger: dict[str, Any] = field(default_factory=dict)
    person: Person | None = None

    def __post_init__(self) -> None:
        identity = self.person or Person(self.number)
        self.data = DataDir(self.root / "data").create()
        self.data.manifest.write_text(manifest_to_json(self.manifest), encoding="utf-8")
        path = self.root / "key.json"
        self.identity = keystore.create(path, None, node_seed=identity.seed, account_key=identity.secret)
        self.peer_id = peer_id_from_key(identity.node)
        self.address = f"/memory/{self.peer_id}/p2p/{self.peer_id}"

    @property
    def config(self) -> Config:
        """Configuration in which all rollouts of others are audited, and only the batch limits the draws."""
        settings = {
            "model": str(self.model),
            "local_groups": LOCAL_GROUPS,
            "external_groups": EXTERNAL_GROUPS,
            "completions": COMPLETIONS,
            "max_new_tokens": 6,
            **self.learner,
        }
        return Config(
            identity=str(self.identity.path),
            data_dir=self.data.root,
            swarm=SwarmConfig(listen_before_signing_seconds=self.listen_seconds),
            learner=LearnerConfig(**settings),
            sampler=SamplerConfig(**self.sampler),
            verification=VerificationConfig(
                audit_share=1.0, audit_time=1.0, account_cap=1.0, newcomer_cap=1.0
            ),
            judge=JudgeConfig(every=self.judge_every),
            ledger=LedgerConfig(**self.ledger),
        )

    def node(
        self,
        hub: MemoryHub,
        *,
        neighbours: Iterable["Addressed"] = (),
        steps: int | None = None,
        clock: Clock = wall_clock,
        steady: Clock | None = None,
        options: RunOptions | None = None,
        roles: Roles = NO_ROLES,
        locks: Path | None = None,
    ) -> NodeApp:
        """Return a node with this data directory, not running yet.

        Nodes with one folder of locks run on one machine; without one each runs on its own.

        A clock of a test's own is one that nobody sets, unless the test gives a steady one beside it.
        """
        if steady is None:
            steady = steady_clock if clock is wall_clock else clock
        addresses = tuple(home.address for home in neighbours)
        transport = partial(_transport, hub, self.peer_id, addresses)
        options = options or RunOptions(steps=steps, settings=self.settings)
        return NodeApp(
            config=self.config,
            identity=self.identity,
            options=options,
            manifest=self.manifest,
            data=self.data,
            open_transport=transport,
            show=_say_nothing,
            clock=clock,
            steady=steady,
            roles=roles,
            locks=locks,
        )

    def events(self, *names: str) -> Events:
        """Return all events of the node, or those with the given names."""
        return [event for event in read_events(self.data.events) if not names or event["event"] in names]

    def has_learner(self) -> bool:
        """Whether a learner runs and writes to its log."""
        log = self.data.learner / "learner.log"
        return any(_writes_errors_to(process, log) for process in Path("/proc").iterdir())

    def signal_learner(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the running learner."""
        os.kill(self._learner_pid(), number)

    def limit_learner(self, size: int) -> None:
        """Let no file of the running learner grow beyond a size in bytes, as on a full disk."""
        resource.prlimit(self._learner_pid(), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _learner_pid(self) -> int:
        """Return the process that writes to the learner's log."""
        log = self.data.learner / "learner.log"
        [learner] = [process for process in Path("/proc").iterdir() if _writes_errors_to(process, log)]
        return int(learner.name)

    async def stop(self) -> None:
        """Stop the node, as `sapo stop` does."""
        await trio.to_thread.run_sync(partial(ControlClient(self.data).stop, finish=True))

    async def get(self, report: str) -> Any:
        """Return an answer of the running node's control API."""
        return await trio.to_thread.run_sync(ControlClient(self.data).get, report)


def _writes_errors_to(process: Path, log: Path) -> bool:
    try:
        return process.name.isdigit() and (process / "fd" / "2").readlink() == log
    except OSError:
        return False  # it ended, or belongs to another user


def _transport(hub: MemoryHub, peer_id: str, bootstrap: tuple[str, ...], on_bug: BugReport) -> Transport:
    return MemoryTransport(hub, peer_id, on_bug=on_bug, bootstrap=bootstrap)


def _say_nothing(_summary: RoundSummary) -> None:
    """Print no status line."""
