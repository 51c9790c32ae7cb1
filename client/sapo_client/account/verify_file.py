"""``sapo verify FILE``: the admission rules and the checker on one envelope, step by step.

The steps are the stages of ``verification/README.md`` as far as they apply to a file: a file has no arrival
time, so stage 3 (epoch window) is reported but not checked, and stage 4 (seen before) does not apply. The
certificate and the beacon come from the data directory of a node that received the envelope; the beacon is
the only value that cannot be derived offline in a swarm with a chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

from sapo_client.node.runtime.manifests import kept_manifest, read_manifest, require_same_suite
from sapo_client.observe.events import last_events
from sapo_client.paths import DataDir
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_protocol.envelope import Kind, SignedEnvelope, open_payload, parse_envelope
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout, parse_rollout
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.admission.certificates import CertificateStore, stored_certificates
from sapo_verification.jail.checkers import Checked, CheckerPool, CheckFailed

_EPOCH_EVENTS = 10_000
"""Number of latest `epoch` events in which a beacon is searched."""


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """Outcome of one step; ``ok`` is none if it cannot be checked here, ``rule`` is the broken rule."""

    name: str
    ok: bool | None
    detail: str
    rule: str | None = None


def steps(message: bytes, manifest_path: Path | None, data: DataDir) -> Iterator[VerificationStep]:
    """Yield the steps in order, up to the first that fails.

    Raises:
        SapoError: there is no usable manifest.
    """
    manifest = read_manifest(manifest_path) if manifest_path else kept_manifest(data)
    passed: list[VerificationStep] = []
    try:
        for step in _admission(message, manifest, data):
            passed.append(step)
            yield step
    except RemoteProtocolError as error:
        yield VerificationStep(ADMISSION_STEPS[len(passed)], False, str(error), error.rule.number)
        return
    rollout = parse_rollout(parse_envelope(message, manifest.swarm_id).payload)
    yield from _checker(manifest, rollout, data)


ADMISSION_STEPS: Final = ("envelope", "rollout", "epoch", "assignment", "signature", "certificate")


def _admission(message: bytes, manifest: Manifest, data: DataDir) -> Iterator[VerificationStep]:
    """Yield the steps of admission, in the order of `ADMISSION_STEPS`.

    Raises:
        RemoteProtocolError: the next step fails.
    """
    envelope = parse_envelope(message, manifest.swarm_id)
    yield VerificationStep("envelope", True, f"{len(message)} bytes, canonical, of swarm {manifest.name}")
    rollout = parse_rollout(open_payload(envelope, Kind.ROLLOUT))
    node = rollout.node.hex()[:12]
    yield VerificationStep("rollout", True, f"{len(rollout.completions)} completions of node {node}")
    yield VerificationStep("epoch", True, _epoch_text(manifest, rollout))
    yield _assignment(manifest, rollout)
    yield _signature(envelope, rollout)
    yield _certificate(manifest, rollout, data)


def _epoch_text(manifest: Manifest, rollout: Rollout) -> str:
    start, end = (epoch_start_seconds(manifest, rollout.epoch + step) for step in (0, 1))
    try:
        times = [
            datetime.fromtimestamp(format_time, UTC).isoformat(timespec="seconds")
            for format_time in (start, end)
        ]
    except (OverflowError, ValueError):
        return f"epoch {rollout.epoch}, beyond the calendar"
    return f"epoch {rollout.epoch}, " + " to ".join(times)


def _assignment(manifest: Manifest, rollout: Rollout) -> VerificationStep:
    limits, families = manifest.limits_at(rollout.epoch), manifest.suite.families
    if rollout.slot >= limits.slots_per_epoch:
        raise RemoteProtocolError(Rule.SLOT_QUOTA, f"slot {rollout.slot} of {limits.slots_per_epoch}")
    if len(rollout.completions) > limits.max_completions:
        raise RemoteProtocolError(Rule.MANIFEST_COMPLETIONS, f"{len(rollout.completions)} completions")
    if rollout.family not in manifest.families_at(rollout.epoch):
        raise RemoteProtocolError(Rule.KNOWN_FAMILY, f"family {rollout.family} of {len(families)}")
    family = families[rollout.family]
    return VerificationStep("assignment", True, f"slot {rollout.slot}, family {family.name} ({family.level})")


def _signature(envelope: SignedEnvelope, rollout: Rollout) -> VerificationStep:
    if not envelope.is_signed_by(rollout.node):
        raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
    return VerificationStep("signature", True, f"Ed25519 by the node, content id {envelope.content_id}")


def _certificate(manifest: Manifest, rollout: Rollout, data: DataDir) -> VerificationStep:
    if not data.database.exists():
        return VerificationStep(
            "certificate", None, "no data directory of a node that knows the author (--data-dir)"
        )
    stored = [envelope for _, _, envelope in stored_certificates(data.database)]
    first = epoch_start_seconds(manifest, rollout.epoch)
    last = epoch_start_seconds(manifest, rollout.epoch + 1 + EPOCH_WINDOW) - 1
    try:
        _require_introduced(manifest, rollout, stored, first)
    except RemoteProtocolError:  # its author may have joined while the rollout's epoch was accepted
        _require_introduced(manifest, rollout, stored, last)
    return VerificationStep("certificate", True, f"node and account {rollout.account} name each other")


def _require_introduced(manifest: Manifest, rollout: Rollout, stored: list[bytes], at: float) -> None:
    certificates = CertificateStore(manifest)
    for envelope in stored:
        with suppress(RemoteProtocolError):
            certificates.admit(envelope, at)
    certificates.require(rollout.node, rollout.account, at)


def _checker(manifest: Manifest, rollout: Rollout, data: DataDir) -> Iterator[VerificationStep]:
    if (known := _beacon(manifest, rollout.epoch, data)) is None:
        yield VerificationStep(
            "beacon", None, "it is on the chain, and no data directory here has it (--data-dir)"
        )
        return
    yield VerificationStep("beacon", True, known.hex())
    require_same_suite(manifest)
    task = assigned_task(
        manifest.swarm_id, known, account=rollout.account, family=rollout.family, slot=rollout.slot
    )
    try:
        checked = trio.run(_check, manifest, task, rollout.completions)
    except CheckFailed as error:
        yield VerificationStep("checker", None if error.reason.decides_nothing else False, str(error))
        return
    yield VerificationStep("task", True, f"seed {task.seed}: {checked.prompt.strip()!r}")
    yield VerificationStep(
        "checker", True, f"rewards {' '.join(f'{reward:.0f}' for reward in checked.rewards)}"
    )


async def _check(manifest: Manifest, task: Task, completions: tuple[bytes, ...]) -> Checked:
    async with trio.open_nursery() as nursery:
        pool = CheckerPool(manifest.suite)
        await nursery.start(pool.run)
        try:
            return await pool.check(task, completions)
        finally:
            nursery.cancel_scope.cancel()


def _beacon(manifest: Manifest, epoch: int, data: DataDir) -> Digest | None:
    if not manifest.has_chain:
        return beacon(manifest.swarm_id, epoch, b"")
    for event in last_events(data.events, "epoch", _EPOCH_EVENTS):
        if event["epoch"] == epoch:
            return Digest.from_hex(str(event["beacon"]))
    return None
