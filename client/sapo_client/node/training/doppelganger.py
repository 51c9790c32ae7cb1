"""Doppelganger protection: a node listens for another process with its identity before it signs.

Two processes with one identity sign two contents for one slot, which is an equivocation and costs the account
its reputation; a lock on the key file covers only this machine. So a node listens first at every
start: a rollout under the own key that this data directory never signed, or one of the own account in a slot
of the own share, proves a second machine, a copied directory, or a lost signing history. The node then
refuses to sign (as Ethereum's validators do), also when it detects this later than at the start.

The wait is skipped after a clean stop if the signing database shows a signature of this or the previous
epoch: then the recent signatures are from this directory. Not detected are a process on another machine that
sends nothing, or cannot reach this node, during the wait, and a copy for another machine that was made after
a clean stop.

On one machine no peer is needed: beside the lock of the identity stands what it signed last, and in which
data directory. A directory that does not hold these signatures signs nothing before the epoch after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.machine_marks import MachineMarks, SignedMark
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.epochs import epoch_start_seconds, present_epoch
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest
from sapo_verification.observer import Observer
from sapo_verification.signing.database import Mark, SigningDatabase, SlotShare
from sapo_verification.types import AdmittedRollout

RECENT_EPOCHS = 1
"""Largest age of the last signature for which the wait is skipped after a clean stop."""

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DoppelgangerParts:
    """The parts that doppelganger protection works with.

    Attributes:
        seconds: time to listen once a peer is connected.
        stopped_clean: whether the last run of this data directory ended cleanly.
        data_dir: the data directory.
        machine: what the account signed on this machine in any data directory; None if that is not kept.
    """

    manifest: Manifest
    node: NodeId
    account: Account
    signing: SigningDatabase
    share: SlotShare
    transport: Transport
    telemetry: Telemetry
    clock: Clock
    seconds: float
    stopped_clean: bool
    data_dir: Path
    machine: MachineMarks | None = None


class Doppelganger(Observer):
    """Observer of admitted rollouts that prevents signing after another process has signed as this node."""

    def __init__(self, parts: DoppelgangerParts) -> None:
        self._parts = parts
        self._start_epoch = self._epoch()
        self._found = trio.Event()
        self._listened = parts.seconds == 0
        self._signed_as = ""

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Examine a received rollout of the own account that was not known here."""
        rollout = admitted.rollout
        if rollout.account != self._parts.account:
            return
        if rollout.epoch < self._start_epoch or self._signed_here(rollout.epoch, rollout.slot):
            return  # it cannot conflict with a later signature
        if rollout.node == self._parts.node:
            self._record(admitted, "this node's key")
        elif self._parts.share.holds(rollout.slot):
            self._record(admitted, f"this account, in a slot of machine {self._parts.share}")

    async def require_alone(self, draining: trio.Event) -> None:
        """Return when the node may sign: at the first call after listening, at later calls at once.

        Raises:
            SapoError: another process signs with this identity, or it signed slots of this epoch in another
                data directory of this machine (exit code 4).
        """
        self._require_signatures_here()
        if not self._listened:
            await self._listen(draining)
            self._listened = True
        if self._found.is_set():
            raise SapoError(
                f"another process signs as {self._signed_as}, so this one must not",
                hint="stop the other one, or give each machine its part of the slots (swarm.slot_share);"
                " if a data directory was lost, import its signing history or wait for the next epoch",
                exit_code=ExitCode.KEYSTORE,
            )

    def slots_taken(self) -> None:
        """Record for other data directories of this machine that slots were taken, before they are signed."""
        if self._parts.machine is not None and (mark := self._mark()) is not None:
            self._parts.machine.record(mark)

    def _require_signatures_here(self) -> None:
        parts = self._parts
        if parts.machine is None:
            return
        signed = parts.machine.above(parts.manifest.swarm_id, self._mark(), parts.share)
        if signed is None or signed.epoch < self._epoch():
            return
        raise SapoError(
            f"this account signed in epoch {signed.epoch} with data directory {signed.data_dir}, and the"
            f" signing history of {parts.data_dir} does not hold it, so this node must not sign",
            hint=_what_to_do(signed, parts),
            exit_code=ExitCode.KEYSTORE,
        )

    async def _listen(self, draining: trio.Event) -> None:
        if self._signed_lately():
            return
        self._parts.telemetry.events.write("listening", seconds=self._parts.seconds)
        with trio.move_on_after(self._parts.seconds):
            await self._wait_for_peer(draining)
        with trio.move_on_after(self._parts.seconds):
            await _first_of(self._found, draining)

    async def _wait_for_peer(self, draining: trio.Event) -> None:
        """Return when a peer is connected, since without a peer the absence of messages proves nothing."""
        while not (self._parts.transport.peers() or self._found.is_set() or draining.is_set()):
            await trio.sleep(_LOOK_SECONDS)

    def _signed_lately(self) -> bool:
        mark = self._mark()
        recent = mark is not None and mark.epoch >= self._epoch() - RECENT_EPOCHS
        return recent and self._parts.stopped_clean

    def _signed_here(self, epoch: int, slot: int) -> bool:
        """Whether the signing database covers the slot; the rollout itself may have been lost in a power
        failure."""
        mark = self._mark()
        return (
            mark is not None
            and mark.epoch == epoch
            and slot < mark.next_slot
            and self._parts.share.holds(slot)
        )

    def _record(self, admitted: AdmittedRollout, what: str) -> None:
        if self._found.is_set():
            return
        self._signed_as = what
        rollout = admitted.rollout
        self._parts.telemetry.events.write(
            "heard_self",
            content_id=admitted.content_id,
            node=rollout.node,
            epoch=rollout.epoch,
            slot=rollout.slot,
        )
        self._found.set()

    def _mark(self) -> Mark | None:
        return self._parts.signing.mark(self._parts.manifest.swarm_id, self._parts.account)

    def _epoch(self) -> int:
        return present_epoch(self._parts.manifest, self._parts.clock())


def _what_to_do(signed: SignedMark, parts: DoppelgangerParts) -> str:
    """Return the hint for an operator whose data directory lacks what was signed on this machine."""
    free_seconds = epoch_start_seconds(parts.manifest, signed.epoch + 1)
    free = datetime.fromtimestamp(free_seconds, UTC).isoformat(timespec="seconds")
    later = f"start this node at {free} or later"
    first, here = Path(signed.data_dir), parts.data_dir
    if first == here.absolute() or not first.exists():
        return f"{later}; until then it could sign the same slots again"
    export = f"sapo keys signing export FILE --data-dir {quote(str(first))}"
    imports = f"sapo keys signing import FILE --data-dir {quote(str(here))}"
    return (
        f"go on with that directory (--data-dir), or bring its history (`{export}`, `{imports}`), or {later}"
    )


async def _first_of(*events: trio.Event) -> None:
    """Return when any of the events is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)
