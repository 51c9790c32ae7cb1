"""Opens the engine of a node from its configuration."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from sapo_client.node.auditing.assembly import audit_shares
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.training.assembly import sampling_policy
from sapo_client.observe.storage import StorageFacts
from sapo_client.units import MIB
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_verification.engine import Engine
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.observer import Observer
from sapo_verification.sampling.engine_terms import Terms


def open_engine(
    context: NodeContext, *, checkers: CheckerPool, beacons: Beacons, observers: Iterable[Observer]
) -> Engine:
    """Return the engine over the node's database, with a new secret key for screens and lots."""
    return Engine(
        context.manifest,
        context.data.database,
        own=context.author.account,
        check=checkers.check,
        beacon_of=beacons.known,
        record_of=beacons.records.known,
        key=secrets.token_bytes(32),
        terms=Terms(
            sampling=sampling_policy(context.config),
            audit_share=audit_shares(context).rollouts,
            kept_bytes=context.config.verification.kept_rollouts_mib * MIB,
        ),
        observers=(context.telemetry.recorder, *observers),
    )


def storage_facts(context: NodeContext, engine: Engine) -> StorageFacts:
    """Return the facts on stored rollouts of others for the health report."""
    first = engine.epoch(context.clock()) - EPOCH_WINDOW  # older ones are neither counted nor asked for
    room_mib = context.config.verification.kept_rollouts_mib
    return StorageFacts(dropped=engine.envelopes.budget.dropped(first), room_mib=room_mib)
