"""Admission: stages 1 to 7, cheapest first, from a message to an ``AdmittedRollout``.

=====  ==============================================  =============================
stage  check                                           rules
=====  ==============================================  =============================
0      size (the rest of stage 0 is the transport's)   R0.2
1      strict encoding, closed schema, bounds          R1.0.1 to R1.0.14, R1.2.*
2      version, kind, swarm                            R2.1 to R2.4
3      epoch within the window                         R3.1, R3.2
4      content not seen                                R4.1
6c     the island is the account's home                R6.7 (before 5: no certificate is requested)
5b     the account has a bond, where one is needed     R5.6 (before 5 for the same reason)
5      the node has a valid certificate                R5.1, R5.2
6      slot and group within limits, known family      R6.11, R6.1 to R6.3
7      Ed25519                                         R7.1
6b     slot not used by other content                  R6.4 (after 7: see penalties)
=====  ==============================================  =============================

A message that passes is an ACCEPT. Nothing is stored about a message before its signature is checked;
otherwise a forged message could make this node ignore the genuine one.
"""

from collections import OrderedDict
from typing import Final

from sapo_protocol.envelope import Kind, SignedEnvelope, open_payload, parse_envelope
from sapo_protocol.epochs import require_current
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.rollout import Rollout, parse_rollout
from sapo_protocol.rules import Rule
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.taken_slots import TakenSlots
from sapo_verification.islands import TopicIslands
from sapo_verification.store import Source
from sapo_verification.types import AdmittedRollout

MAX_SEEN: Final = 65_536
"""Content ids remembered, about 185 bytes each; beyond it the oldest is dropped. They only save the checks of
a copy: which content came first in a slot is stored (``taken_slots.py``)."""


class SlotTaken(RemoteProtocolError):
    """Refusal of a second content for a slot; both messages together prove equivocation."""

    def __init__(self, slot: int, first: ContentId) -> None:
        super().__init__(Rule.ONE_CONTENT, f"slot {slot} holds other content")
        self.first = first


class TermsInForce:
    """The limits and families of a swarm by epoch.

    Attributes:
        known_until: the last epoch whose terms this node knows for certain; None without a ledger, which
            alone can change them.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._steps: Final = [
            (epoch, manifest.limits_at(epoch), frozenset(manifest.families_at(epoch)))
            for epoch in (0, *(each.activation_epoch for each in manifest.successions))
        ]
        self.known_until: int | None = None

    def require_known(self, epoch: int) -> None:
        """Raise unless this node knows for certain the terms of an epoch.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN``.
        """
        if self.known_until is not None and epoch > self.known_until:
            detail = f"the ledger's announcements were not read for epoch {epoch} yet"
            raise RemoteProtocolError(Rule.TERMS_KNOWN, detail)

    def require_slot(self, epoch: int, slot: int) -> None:
        """Raise unless a slot exists in an epoch.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN`` or ``SLOT_QUOTA``.
        """
        self.require_known(epoch)
        limits, _ = self._at(epoch)
        if slot >= limits.slots_per_epoch:
            raise RemoteProtocolError(Rule.SLOT_QUOTA, f"slot {slot}")

    def require_assignable(self, rollout: Rollout) -> None:
        """Raise unless a rollout's slot, group and family are allowed in its epoch.

        Raises:
            RemoteProtocolError: ``TERMS_KNOWN``, ``SLOT_QUOTA``, ``MANIFEST_COMPLETIONS`` or
                ``KNOWN_FAMILY``.
        """
        self.require_slot(rollout.epoch, rollout.slot)
        limits, families = self._at(rollout.epoch)
        if len(rollout.completions) > limits.max_completions:
            raise RemoteProtocolError(Rule.MANIFEST_COMPLETIONS, f"{len(rollout.completions)} completions")
        if rollout.family not in families:
            raise RemoteProtocolError(Rule.KNOWN_FAMILY, f"family {rollout.family}")

    def _at(self, epoch: int) -> tuple[Limits, frozenset[int]]:
        _, limits, families = next(step for step in reversed(self._steps) if step[0] <= epoch)
        return limits, families


class Admission:
    """Admission of rollouts to one node of one swarm; single-threaded, without a clock of its own.

    Args:
        terms: the limits and families of each epoch, as far as this node knows.
        path: where the first contents of slots are stored.
    """

    def __init__(
        self,
        manifest: Manifest,
        certificates: CertificateStore,
        max_seen: int = MAX_SEEN,
        terms: TermsInForce | None = None,
        path: Source = ":memory:",
    ) -> None:
        self.terms: Final = terms or TermsInForce(manifest)
        self._max_seen = max_seen
        self._manifest = manifest
        self._certificates = certificates
        self._islands = certificates.islands
        self._standing = certificates.standing
        self._slots = TakenSlots(path)
        self._seen: OrderedDict[ContentId, int] = OrderedDict()
        """Epochs by content id, in the order of admission."""

    def __len__(self) -> int:
        """Return the number of slots whose first content is stored."""
        return len(self._slots)

    def admit(
        self,
        data: bytes,
        now_seconds: float,
        topic_islands: TopicIslands = None,
        *,
        again: bool = False,
        stored: bool = False,
    ) -> AdmittedRollout:
        """Admit the rollout in a message and return it.

        Args:
            topic_islands: islands of the topic on which it was received; None accepts any island.
            again: admit a known content once more, for an audit by sample.
            stored: it was accepted before a restart; the certificate may have been displaced since.

        Raises:
            RemoteProtocolError: with the reason that decides the verdict; ``SlotTaken`` for a second content.
        """
        envelope = parse_envelope(data, self._manifest.swarm_id)
        rollout = parse_rollout(open_payload(envelope, Kind.ROLLOUT))
        require_current(self._manifest, rollout.epoch, now_seconds)
        if (is_known := envelope.content_id in self._seen) and not again:
            raise RemoteProtocolError(Rule.ROLLOUT_NEW, "the rollout is known")
        if self._islands.is_divided:
            self._islands.require_rollout(rollout.account, rollout.epoch, topic_islands)
        if self._standing.has_gate:
            self._standing.require(rollout.account, rollout.epoch)
        require = self._certificates.require_of_proof if stored else self._certificates.require
        require(rollout.node, rollout.account, now_seconds)
        self.terms.require_assignable(rollout)
        if not envelope.is_signed_by(rollout.node):
            raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
        if not is_known:
            self._occupy_slot(rollout, envelope)
            self._certificates.note_signed(rollout.node, rollout.account)
        return AdmittedRollout(envelope.content_id, rollout)

    def has_seen(self, content_id: ContentId) -> bool:
        """Whether a rollout was admitted since the start, unless very many were admitted after it."""
        return content_id in self._seen

    def forget(self, before_epoch: int) -> None:
        """Drop the slots of earlier epochs, whose rollouts are no longer admitted."""
        self._slots.forget(before_epoch)
        for content_id in [each for each, epoch in self._seen.items() if epoch < before_epoch]:
            del self._seen[content_id]

    def _occupy_slot(self, rollout: Rollout, envelope: SignedEnvelope) -> None:
        content_id = envelope.content_id
        first = self._slots.take(rollout.epoch, rollout.account, rollout.slot, content_id)
        if first != content_id:
            raise SlotTaken(rollout.slot, first)
        self._seen[content_id] = rollout.epoch
        if len(self._seen) > self._max_seen:
            self._seen.popitem(last=False)
