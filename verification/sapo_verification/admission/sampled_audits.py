"""Both sides of audits by sample: this node's commitments and opened groups, and its checks of others'."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sapo_protocol.audits.commitment import Commitment, commit
from sapo_protocol.audits.draw import drawn_slots, is_drawn, sampled_points
from sapo_protocol.audits.groups import GroupRequest, OpenedGroup
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout, parse_rollout
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.gate import points_cap
from sapo_verification.admission.commitments import CommitmentStore
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.rollouts import Admission
from sapo_verification.epoch_count import EpochCount
from sapo_verification.types import AdmittedRollout, VerifiedRollout

_KEPT_TREES: Final = 64
"""Trees kept for the next request, 100 KiB each for 1,024 groups."""

_KEPT_COUNTS: Final = 8192
"""Of accounts of which a group is missing: as many as there are certificates."""

_NEVER: Final = AuditTerms(samples=1, one_in=1)
"""For a swarm without audits by sample, which has no topic for commitments."""


@dataclass(frozen=True, slots=True)
class DrawnAccount:
    """A drawn account: its commitment, and the slots that are drawn of it."""

    commitment: Commitment
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A drawn group that a peer has opened, proved to belong to the commitment, and whether it is paid.

    Attributes:
        is_payable: None if this node was too busy to check it; then the group neither earns nor costs points.
    """

    slot: int
    content_id: ContentId
    is_payable: bool | None


class SampledAudits:
    """One node's part in audits by sample, on the stores of its engine.

    Args:
        verify: stages 9 to 11 of an admitted rollout.
        is_silenced: whether hard evidence silences an account in an epoch (stage 8).
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        commitments: CommitmentStore,
        admission: Admission,
        envelopes: EnvelopeStore,
        count: EpochCount,
        verify: Callable[[AdmittedRollout], Awaitable[VerifiedRollout]],
        is_silenced: Callable[[Account, int], bool],
    ) -> None:
        self._manifest = manifest
        self._terms = manifest.audits or _NEVER
        self.commitments: Final = commitments
        self._admission = admission
        self._envelopes = envelopes
        self._count = count
        self._verify = verify
        self._is_silenced = is_silenced
        self._trees: OrderedDict[tuple[Account, int], ContentTree] = OrderedDict()
        self._incomplete: OrderedDict[tuple[Account, int], int] = OrderedDict()

    # This node's commitments and opened groups

    def own_commitment(
        self, node: NodeId, account: Account, epoch: int, units: Fraction
    ) -> Commitment | None:
        """Return the commitment to all payable groups of the own account that this node knows, or None.

        None if there are none, if one is known already, or if another machine has to commit: of the account's
        nodes with groups in the epoch, the one with the lowest key commits to the groups of all.

        Args:
            units: the account's part of a whole account by the swarm's gate, 0 to 1.
        """
        if self.commitments.has(account, epoch):
            return None
        made = [self._read(message) for message in self._envelopes.of(account, epoch)]
        if not made or min(rollout.node for _, rollout in made) != node:
            return None
        paid = self._count.evidence(epoch, account)
        groups = sorted((rollout.slot, content) for content, rollout in made if content in paid)
        groups = groups[: self._cap(units)]
        return commit(node, account, epoch, groups) if groups else None

    def open_groups(self, request: GroupRequest) -> tuple[OpenedGroup, ...]:
        """Return the requested groups; none unless this node holds all groups of the commitment."""
        commitment = self.commitments.of(request.account, request.epoch)
        if commitment is None or not set(request.slots) <= set(commitment.slots):
            return ()
        if (tree := self._tree(commitment)) is None:
            return ()
        places = [commitment.slots.index(slot) for slot in sorted(set(request.slots))]
        shown = [(self._envelopes.envelope(tree.contents[place]), tree.path(place)) for place in places]
        return tuple(OpenedGroup(message, path) for message, path in shown if message is not None)

    def _tree(self, commitment: Commitment) -> ContentTree | None:
        """Return the tree behind a commitment, or None if one of its contents is missing here.

        Where one was missing the others are read again when their number has changed: an account that
        withholds a group could have a node read all of them with each request of a few bytes.
        """
        key = (commitment.account, commitment.epoch)
        if (known := self._trees.get(key)) is None:
            stored = self._envelopes.count_of(*key)
            if self._incomplete.get(key) == stored:
                return None
            held = {rollout.slot: content for content, rollout in map(self._read, self._envelopes.of(*key))}
            contents = [held[slot] for slot in commitment.slots if slot in held]
            if len(contents) < len(commitment.slots):
                self._incomplete[key] = stored
                if len(self._incomplete) > _KEPT_COUNTS:
                    self._incomplete.popitem(last=False)
                return None
            self._trees[key] = known = ContentTree(contents)
            if len(self._trees) > _KEPT_TREES:
                self._trees.popitem(last=False)
        return known if known.root == commitment.root else None

    # Checks of others

    def drawn(self, epoch: int, draw: Digest, registered: Collection[Account]) -> tuple[DrawnAccount, ...]:
        """Return the registered accounts with a commitment that are drawn in an epoch, and their drawn
        slots."""
        known = self.commitments.accounts(epoch)
        due = [one for one in known if one in registered and is_drawn(draw, one, self._terms)]
        found = [one for one in (self.commitments.of(account, epoch) for account in due) if one is not None]
        return tuple(
            DrawnAccount(one, drawn_slots(draw, one.account, one.slots, self._terms)) for one in found
        )

    async def check(
        self, commitment: Commitment, group: OpenedGroup, now_seconds: float
    ) -> JudgedGroup | None:
        """Check a group that a peer has opened; return None if it is not admissible or not part of the
        commitment.

        In that case the peer may be at fault, not the account.
        """
        try:
            content, rollout = self._read(group.message)
            if (rollout.account, rollout.epoch) != (commitment.account, commitment.epoch):
                return None
            if not commitment.holds(rollout.slot, content, group.path):
                return None
            if (payable := self._count.is_payable(content)) is not None:
                return JudgedGroup(rollout.slot, content, payable)
            admitted = self._admission.admit(group.message, now_seconds, again=True)
        except RemoteProtocolError:
            return None
        self._envelopes.add(admitted, group.message)
        try:
            payable = (await self._verify(admitted)).is_informative
        except RemoteProtocolError as error:
            if error.reason is Reason.BEACON_UNKNOWN:
                return None
            payable = None if error.reason is Reason.NODE_BUSY else False
        return JudgedGroup(rollout.slot, content, payable)

    def points(
        self,
        drawn: DrawnAccount,
        failed: int,
        units: Mapping[Account, Fraction] | None,
        *,
        undecided: int = 0,
    ) -> int:
        """Return the points of a drawn account; 0 if hard evidence silences it in the epoch.

        Args:
            units: each account's part of a whole account by the swarm's gate; None if every account counts in
                full.
            undecided: drawn groups that this node was too busy to check.
        """
        account = drawn.commitment.account
        if self._is_silenced(account, drawn.commitment.epoch):
            return 0
        part = Fraction(1) if units is None else units.get(account, Fraction(0))
        return sampled_points(
            len(drawn.commitment.slots),
            len(drawn.slots),
            failed,
            cap=self._cap(part),
            terms=self._terms,
            undecided=undecided,
        )

    def _cap(self, units: Fraction) -> int:
        return points_cap(self._manifest.limits.points_per_epoch, units)

    def _read(self, message: bytes) -> tuple[ContentId, Rollout]:
        envelope = parse_envelope(message, self._manifest.swarm_id)
        return envelope.content_id, parse_rollout(open_payload(envelope, Kind.ROLLOUT))
