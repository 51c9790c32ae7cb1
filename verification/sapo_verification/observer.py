"""The interface through which the engine reports its decisions.

The event file with the metrics is one observer, the pay count another. An observer is called inside the
transaction that stores the decision, so what it writes on the same connection is stored atomically with it.
It must not write on another connection to the same file: that write would wait for this transaction, a
deadlock.
"""

from sapo_protocol.equivocation import EquivocationProof
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.rules import Rule
from sapo_verification.types import AdmittedRollout, VerifiedRollout


class Observer:
    """Receives every decision of an engine; subclasses override what they need, the rest is ignored.

    ``source`` is the label that ``Engine.receive`` was given.
    """

    def message_refused(self, error: RemoteProtocolError, message: bytes, source: str) -> None:
        """Handle a message that broke a rule of stages 0 to 7."""

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Handle a received rollout that passed stages 1 to 7; its account may be the own one."""

    def queued(self, admitted: AdmittedRollout) -> None:
        """Handle a rollout that now waits for an audit."""

    def displaced(self, admitted: AdmittedRollout) -> None:
        """Handle a rollout that lost its place in the full audit queue."""

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Handle an admitted rollout that broke a rule of stage 8 or later."""

    def verified(self, rollout: VerifiedRollout) -> None:
        """Handle a rollout that was re-derived and re-scored for the first time."""

    def proved(self, proof: EquivocationProof, source: str | None) -> None:
        """Handle a proof of equivocation; ``source`` is None if this node made it."""

    def own_slot_conflict(self, epoch: int, slot: int) -> None:
        """Handle a second content in a slot of the own account."""


class Observers(list[Observer], Observer):
    """Observers as one: each call goes to all of them, in the order in which they were added."""

    def message_refused(self, error: RemoteProtocolError, message: bytes, source: str) -> None:
        """See ``Observer.message_refused``."""
        for observer in self:
            observer.message_refused(error, message, source)

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """See ``Observer.admitted``."""
        for observer in self:
            observer.admitted(admitted, message, source)

    def queued(self, admitted: AdmittedRollout) -> None:
        """See ``Observer.queued``."""
        for observer in self:
            observer.queued(admitted)

    def displaced(self, admitted: AdmittedRollout) -> None:
        """See ``Observer.displaced``."""
        for observer in self:
            observer.displaced(admitted)

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """See ``Observer.refused``."""
        for observer in self:
            observer.refused(rule, admitted, detail)

    def verified(self, rollout: VerifiedRollout) -> None:
        """See ``Observer.verified``."""
        for observer in self:
            observer.verified(rollout)

    def proved(self, proof: EquivocationProof, source: str | None) -> None:
        """See ``Observer.proved``."""
        for observer in self:
            observer.proved(proof, source)

    def own_slot_conflict(self, epoch: int, slot: int) -> None:
        """See ``Observer.own_slot_conflict``."""
        for observer in self:
            observer.own_slot_conflict(epoch, slot)
