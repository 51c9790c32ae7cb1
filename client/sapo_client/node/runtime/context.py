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
    """The key that signs this node's messages, and the account for which they count."""

    seed: bytes
    node: NodeId
    account: Account


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The shared parts from which all parts of a node are opened.

    Attributes:
        clock: the time by which the node lives; no jump of the wall clock before it is believed.
        clock_watch: says whether the wall clock is believed, and which time has passed for certain.
        rng: has a seed of its own on every node, or all nodes would choose alike.
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
        """Let further draws follow from the policy's step, or every start would draw what the first one drew.

        They stay a function of seed, identity and step.
        """
        self.rng.seed(f"{self.config.learner.seed}:{self.identity.node_id}:{step}")
