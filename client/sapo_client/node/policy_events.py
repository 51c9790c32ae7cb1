"""Recent incidents of a node, above all of its policy, collected from its events and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from sapo_client.full_disk import has_space
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.health import (
    INTERVAL_SECONDS,
    MISMATCH_NATS,
    REMEMBERED_SECONDS,
    WAITED_FOR,
    WAITED_SECONDS,
    PolicyEvent,
)

if TYPE_CHECKING:
    from sapo_client.learner.backend import Backend
    from sapo_client.observe.events import EventLog


@dataclass(frozen=True, slots=True)
class _Happened:
    at: float
    code: FindingCode
    text: str

    @property
    def lasts_seconds(self) -> float:
        """How long it is reported."""
        if self.code is FindingCode.APPROVED_ELSEWHERE:
            return math.inf  # this process approves nothing more
        return WAITED_SECONDS if self.code in WAITED_FOR else REMEMBERED_SECONDS


class PolicyEvents:
    """Recent restarts, rollbacks, damaged checkpoints and failed services.

    Args:
        checkpoints: folder of the learner's checkpoints.
    """

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self._happened: list[_Happened] = []
        self._set_aside: tuple[str, ...] = ()

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        match event:
            case "learner_restarted":
                text = f"the learner was restarted after step {fields['step']}: {fields['why']}"
                self._add(FindingCode.LEARNER_RESTARTED, text)
            case "learner_moved":
                before, device = fields["before"], fields["device"]
                text = f"the learner trains on {device} since its restart, not on {before}"
                self._add(FindingCode.LEARNER_MOVED, text)
            case "rolled_back":
                self._add(FindingCode.POLICY_ROLLED_BACK, _rollback(fields))
            case "step" if isinstance(found := fields.get("mismatch"), float) and found > MISMATCH_NATS:
                step = fields["step"]
                text = f"the sampler was off by {found:.2g} nats per token in step {step}"
                self._add(FindingCode.SAMPLER_MISMATCH, text)
            case "checkpoint_failed":
                self._add(FindingCode.CHECKPOINT_FAILED, str(fields["why"]))
            case "good_lost":
                text = (
                    "the policy to which the canary goes back was lost or damaged, so the present one was"
                    f" kept in its place at step {fields['step']}"
                )
                self._add(FindingCode.GOOD_POLICY_LOST, text)
            case "learner_waits" if fields["finding"]:
                self._add(FindingCode(str(fields["finding"])), str(fields["why"]))
            case "approved_elsewhere":
                text = (
                    f"another node approves as this auditor (epoch {fields['epoch']}), and two roots in one"
                    " turn cost the bond, so this node approves nothing"
                )
                self._add(FindingCode.APPROVED_ELSEWHERE, text)
            case "service_failed" if fields["finding"]:
                self._add(FindingCode(str(fields["finding"])), str(fields["told"]))
            case "service_failed" if not fields["transient"]:  # the others have findings of their own
                text = f"the part {fields['service']} of this node failed: {fields['error']}"
                self._add(FindingCode.SERVICE_FAILED, text)

    def look(self, learner: Backend, events: EventLog) -> None:
        """Record incidents of the learner since the last call, such as damaged checkpoints that it
        skipped."""
        for event, fields in learner.take_happened():
            events.write(event, **fields)
        if learner.set_aside == self._set_aside:
            return
        self._set_aside = learner.set_aside
        if not self._set_aside:
            return
        newest = max(map(_step_of, self._set_aside))
        names = ", ".join(self._set_aside)
        step = learner.step
        events.write("checkpoint_set_aside", folder=self._checkpoints, checkpoints=names, resumed=step)
        if step == 0:
            text = (
                f"no checkpoint in {self._checkpoints} can be read ({names}), so training began again with"
                f" the configured model and {newest} steps are lost"
            )
            self._add(FindingCode.POLICY_RESET, text)
        else:
            text = f"checkpoint {names} is damaged, so training went on at step {step}, not {newest}"
            self._add(FindingCode.CHECKPOINT_UNREADABLE, text)

    def recent(self) -> tuple[PolicyEvent, ...]:
        """Return the incidents that are still reported, one per code with the text of the last one."""
        now = trio.current_time()
        self._happened = [each for each in self._happened if now - each.at <= each.lasts_seconds]
        if self._has_space_again(now):
            self._happened = [each for each in self._happened if each.code is not FindingCode.DISK_FULL]
        last = {happened.code: happened.text for happened in self._happened}
        counts = [happened.code for happened in self._happened if happened.code not in WAITED_FOR]
        return tuple(PolicyEvent(code, text, max(1, counts.count(code))) for code, text in last.items())

    def _has_space_again(self, now: float) -> bool:
        """Whether the disk was full and no longer is: the parts that wait retry only within a minute.

        Every failure is reported for an interval, so that one assessment has it.
        """
        failures = [each.at for each in self._happened if each.code is FindingCode.DISK_FULL]
        if not failures or now - failures[-1] <= INTERVAL_SECONDS:
            return False
        return all(map(has_space, self._checkpoints.parents[:2]))  # the learner's folder may be a link

    def _add(self, code: FindingCode, text: str) -> None:
        self._happened.append(_Happened(trio.current_time(), code, text))


def _rollback(fields: Mapping[str, object]) -> str:
    """Return a sentence on what the canary found and did."""
    planted, accounts, spoilt = fields["planted"], fields["quarantined"], fields.get("spoilt")
    if isinstance(accounts, list) and accounts:
        number = "1 account is" if len(accounts) == 1 else f"{len(accounts)} accounts are"
        harm = f"others' text was planted in {planted} of the canary's answers; {number} in quarantine"
    elif isinstance(spoilt, list) and spoilt:
        number = "1 family" if len(spoilt) == 1 else f"{len(spoilt)} families"
        harm = f"others' text has made the policy lose more than half of what it could do in {number}"
    else:
        harm = (
            f"others' text has made the policy worse: its reward is {fields['reward']},"
            f" {fields['shadow']} without that text"
        )
    return f"{harm}; the policy without it was restored at step {fields['step']}"


def _step_of(checkpoint: str) -> int:
    """Return the step in the name of a checkpoint."""
    number = checkpoint.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
