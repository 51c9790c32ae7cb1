"""``sapo verify FILE``: the stages of verification on one envelope, by their numbers in the specification.

Stages that need more than the file are reported as not checked: arrival time and sender (stages 3 and 4), and
those that need a node's own state and model (stages 8 and 11 to 13). The certificate and the beacon come from
the data directory of a node that received the envelope; the beacon is the only value that cannot be derived
offline in a swarm with a chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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
from sapo_protocol.rules import STAGES, Rule
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.admission.certificates import CertificateStore, stored_certificates
from sapo_verification.jail.checkers import Checked, CheckerPool, CheckFailed
from sapo_verification.tasks.text_policy import group_fault

_EPOCH_EVENTS = 10_000
"""Number of latest `epoch` events in which a beacon is searched."""


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """Outcome of one stage.

    Attributes:
        stage: its number in the specification, 0 to 13.
        ok: none if it was not checked.
        rule: the broken rule.
        is_skipped: whether it was not checked because time, or data in a data directory, was missing.
    """

    stage: int
    ok: bool | None
    detail: str
    rule: str | None = None
    is_skipped: bool = False

    @property
    def name(self) -> str:
        """The stage's name in the specification."""
        return STAGES[self.stage]


def steps(message: bytes, manifest_path: Path | None, data: DataDir) -> Iterator[VerificationStep]:
    """Yield the stages in order, up to the first that fails.

    Raises:
        SapoError: there is no usable manifest.
    """
    manifest = read_manifest(manifest_path) if manifest_path else kept_manifest(data)
    try:
        yield from _admission(message, manifest, data)
    except RemoteProtocolError as error:
        yield VerificationStep(error.rule.stage, False, str(error), error.rule.number)
        return
    rollout = parse_rollout(parse_envelope(message, manifest.swarm_id).payload)
    yield VerificationStep(8, None, "bans and free places in the pool are known to a running node only")
    yield (text := _visible_text(manifest, rollout))
    if text.ok is False:
        return
    yield (scored := _scored(manifest, rollout, data))
    if scored.ok is not False:
        yield VerificationStep(11, None, "a node compares with what it has received")
        yield VerificationStep(12, None, "a node asks its own model, when it draws the rollout")
        yield VerificationStep(13, None, "a node compares with the author's other rollouts")


def _admission(message: bytes, manifest: Manifest, data: DataDir) -> Iterator[VerificationStep]:
    """Yield the stages 0 to 7.

    Raises:
        RemoteProtocolError: the next stage fails.
    """
    readable = (
        VerificationStep(0, True, f"{len(message)} bytes"),
        VerificationStep(1, True, "canonical, and every field within its bounds"),
        VerificationStep(2, True, f"a rollout of swarm {manifest.name}"),
    )
    try:
        envelope = parse_envelope(message, manifest.swarm_id)
        rollout = parse_rollout(open_payload(envelope, Kind.ROLLOUT))
    except RemoteProtocolError as error:
        yield from readable[: error.rule.stage]
        raise
    yield from readable
    yield VerificationStep(3, None, f"{_epoch_text(manifest, rollout)}; a file does not show when it came")
    yield VerificationStep(4, None, "a file does not show what came before it")
    yield _certificate(manifest, rollout, data)
    yield _assignment(manifest, rollout)
    yield _signature(envelope, rollout)


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
    count = len(rollout.completions)
    detail = f"slot {rollout.slot}, family {family.name} ({family.level}), {count} completions"
    return VerificationStep(6, True, detail)


def _signature(envelope: SignedEnvelope, rollout: Rollout) -> VerificationStep:
    if not envelope.is_signed_by(rollout.node):
        raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
    node = rollout.node.hex()[:12]
    return VerificationStep(7, True, f"Ed25519 by node {node}, content id {envelope.content_id}")


def _certificate(manifest: Manifest, rollout: Rollout, data: DataDir) -> VerificationStep:
    if not data.database.exists():
        detail = "no data directory of a node that knows the author (--data-dir)"
        return VerificationStep(5, None, detail, is_skipped=True)
    stored = [envelope for _, _, envelope in stored_certificates(data.database)]
    first = epoch_start_seconds(manifest, rollout.epoch)
    last = epoch_start_seconds(manifest, rollout.epoch + 1 + EPOCH_WINDOW) - 1
    try:
        _require_introduced(manifest, rollout, stored, first)
    except RemoteProtocolError:  # its author may have joined while the rollout's epoch was accepted
        _require_introduced(manifest, rollout, stored, last)
    return VerificationStep(5, True, f"node and account {rollout.account} name each other")


def _require_introduced(manifest: Manifest, rollout: Rollout, stored: list[bytes], at: float) -> None:
    certificates = CertificateStore(manifest)
    for envelope in stored:
        with suppress(RemoteProtocolError):
            certificates.admit(envelope, at)
    certificates.require(rollout.node, rollout.account, at)


def _visible_text(manifest: Manifest, rollout: Rollout) -> VerificationStep:
    fault = group_fault(manifest.suite.families[rollout.family], rollout.completions)
    if fault is None:
        return VerificationStep(9, True, "at most a quarter of the completions hide characters")
    return VerificationStep(9, False, fault, Rule.VISIBLE_TEXT.number)


def _scored(manifest: Manifest, rollout: Rollout, data: DataDir) -> VerificationStep:
    """Derive the task again, and score the answers in the jail."""
    if (known := _beacon(manifest, rollout.epoch, data)) is None:
        detail = "the epoch's beacon is on the chain, and no data directory here has it (--data-dir)"
        return VerificationStep(10, None, detail, is_skipped=True)
    require_same_suite(manifest)
    task = assigned_task(
        manifest.swarm_id, known, account=rollout.account, family=rollout.family, slot=rollout.slot
    )
    try:
        checked = trio.run(_check, manifest, task, rollout.completions)
    except CheckFailed as error:
        undecided = error.reason.decides_nothing
        return VerificationStep(10, None if undecided else False, str(error), is_skipped=undecided)
    rewards = " ".join(f"{reward:.0f}" for reward in checked.rewards)
    return VerificationStep(10, True, f"rewards {rewards} for seed {task.seed}: {checked.prompt.strip()!r}")


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
