"""The manifest of a node that trains alone: tasks and epochs, no peers, no chain."""

from __future__ import annotations

from typing import Final

from sapo_client.founding.defaults import nano_suite
from sapo_protocol.manifest import Limits, Manifest

EPOCH_SECONDS: Final = 3600
LIMITS: Final = Limits(slots_per_epoch=100_000, max_completions=16, points_per_epoch=1)
"""Slots that no policy uses up in an hour: nobody else checks them, and nobody is paid for them."""


def alone_manifest(name: str, now_seconds: float) -> Manifest:
    """Return a manifest for one node, whose first epoch begins now."""
    return Manifest(
        name=name,
        bootstrap=(),
        chain_id=0,
        registry=None,
        ledger=None,
        finality_seconds=0,
        genesis_seconds=int(now_seconds),
        epoch_seconds=EPOCH_SECONDS,
        suite=nano_suite(),
        limits=LIMITS,
    )
