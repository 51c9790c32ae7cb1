"""The commitment: the slots of an epoch for which an account claims pay, and the root over their contents.

It is sent before the draw, which does not depend on the root: nobody can choose what is drawn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count

from sapo_protocol.audits.tree import ContentTree, is_path_valid
from sapo_protocol.constants import CLOCK_SLACK_SECONDS
from sapo_protocol.decoding import Bound, Fields, Schema
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, open_payload
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.terms.audits import MAX_COMMITTED_SLOTS

_SCHEMA = Schema(Rule.COMMITMENT_KEYS, Rule.COMMITMENT_TYPES, Rule.COMMITMENT_RESERVED, required=5)
_SLOTS = Bound(Rule.COMMITMENT_SLOTS, minimum=1, maximum=MAX_COMMITTED_SLOTS // 8)


@dataclass(frozen=True, slots=True)
class Commitment:
    """The groups of an epoch for which an account claims pay.

    Attributes:
        slots: ascending, at least one, each below 65,536.
        root: over the content ids of the groups in these slots, in their order.
    """

    node: NodeId
    account: Account
    epoch: int
    slots: tuple[int, ...]
    root: Digest

    def to_payload(self) -> bytes:
        """Return the payload to seal.

        Raises:
            LocalProtocolError: it has no slot, or a slot of 65,536 or more.
        """
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: _to_bits(self.slots),
                4: bytes(self.root),
            }
        )

    def holds(self, slot: int, content: ContentId, path: Sequence[Digest]) -> bool:
        """Whether a Merkle path proves that the root covers a content id in a slot; no if the slot is not
        committed."""
        if slot not in self.slots:
            return False
        return is_path_valid(self.root, content, self.slots.index(slot), len(self.slots), path)


def commit(node: NodeId, account: Account, epoch: int, groups: Iterable[tuple[int, ContentId]]) -> Commitment:
    """Return the commitment to groups, each a slot and its content id, of an account in an epoch.

    Raises:
        ValueError: there are none.
    """
    ordered = sorted(groups)
    if not ordered:
        raise ValueError("a commitment needs at least one group")
    root = ContentTree([content for _, content in ordered]).root
    return Commitment(node, account, epoch, tuple(slot for slot, _ in ordered), root)


def open_commitment(envelope: SignedEnvelope) -> Commitment:
    """Return the commitment in an envelope (stages 1 and 2), its signature not yet checked.

    Raises:
        RemoteProtocolError: ``WRONG_KIND``, ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    return parse_commitment(open_payload(envelope, Kind.COMMITMENT))


def parse_commitment(payload: bytes) -> Commitment:
    """Return the commitment in a payload (stage 1).

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA``, ``OUT_OF_BOUNDS`` or ``RESERVED``.
    """
    fields = Fields(payload, _SCHEMA)
    node, account, epoch = fields.fixed(0, NodeId), fields.fixed(1, Account), fields.uint(2)
    bits = fields.data(3, _SLOTS)
    if not bits[-1]:
        fields.refuse(Rule.COMMITMENT_LAST, "the last byte of the slots is zero")
    root = fields.fixed(4, Digest)
    fields.require_end()
    return Commitment(node, account, epoch, _from_bits(bits), root)


def deadline_seconds(manifest: Manifest, epoch: int) -> float:
    """Return the Unix time until which commitments of an epoch are accepted, by an exact clock."""
    return epoch_start_seconds(manifest, epoch + 1) + grace_seconds(manifest)


def require_in_time(commitment: Commitment, manifest: Manifest, now_seconds: float) -> None:
    """Raise unless the commitment is accepted at this moment (stage 3).

    Raises:
        RemoteProtocolError: ``EPOCH_FUTURE`` or ``EPOCH_PAST``.
    """
    epoch = commitment.epoch
    if now_seconds + CLOCK_SLACK_SECONDS < epoch_start_seconds(manifest, epoch + 1):
        raise RemoteProtocolError(Rule.COMMITMENT_EPOCH_OVER, f"epoch {epoch} is not over")
    if now_seconds >= deadline_seconds(manifest, epoch) + CLOCK_SLACK_SECONDS:
        raise RemoteProtocolError(Rule.COMMITMENT_IN_TIME, f"too late for epoch {epoch}")


def _to_bits(slots: Sequence[int]) -> bytes:
    if not slots or not 0 <= min(slots) <= max(slots) < MAX_COMMITTED_SLOTS:
        raise LocalProtocolError(f"the slots of a commitment are 0 to {MAX_COMMITTED_SLOTS - 1}")
    bits = bytearray(max(slots) // 8 + 1)
    for slot in slots:
        bits[slot // 8] |= 1 << slot % 8
    return bytes(bits)


def _from_bits(bits: bytes) -> tuple[int, ...]:
    return tuple(compress(count(), (byte >> bit & 1 for byte in bits for bit in range(8))))
