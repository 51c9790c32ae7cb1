"""Shared parts of a node: its identity, its configuration, and its telemetry."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapo_client.config import Config
from sapo_client.keystore import Identity
from sapo_client.node.runtime.clock import Clock, ClockWatch
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.paths import DataDir
from sapo_client.swarm.transport import Transport
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest

if TYPE_CHECKING:
    from sapo_client.observe.events import EventLog


@dataclass(frozen=True, slots=True)
class Author:
    """The key that signs this node's messages, and the account that they belong to."""

    seed: bytes
    node: NodeId
    account: Account


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The shared parts from which all parts of a node are opened.

    Attributes:
        clock: the node's time in Unix seconds: the wall clock, without jumps that are not confirmed yet.
        clock_watch: decides whether the wall clock is confirmed, and which time has certainly passed.
        rng: seeded differently on every node, so that nodes choose independently.
        fresh: begin with the configured model although checkpoints exist.
    """

    config: Config
    identity: Identity
    manifest: Manifest
    data: DataDir
    transport: Transport
    telemetry: Telemetry
    clock: Clock
    clock_watch: ClockWatch
    rng: random.Random
    fresh: bool

    @property
    def author(self) -> Author:
        """The author of this node's messages."""
        identity = self.identity
        return Author(identity.node_seed, identity.node_id, identity.account)

    @property
    def events(self) -> EventLog:
        """The event file."""
        return self.telemetry.events

    def draw_on_from(self, step: int) -> None:
        """Seed the random generator again with seed, identity and the policy's step.

        Otherwise every start would repeat the draws of the first one.
        """
        self.rng.seed(f"{self.config.learner.seed}:{self.identity.node_id}:{step}")
