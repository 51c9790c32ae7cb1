"""How an epoch's contributions become one root: tally, proposal, approval.

Every auditor counts an epoch by itself and publishes a *tally*.
One of them proposes: which tallies it took, and for each account their clipped median and the
cumulative sum so far. Everything else of the epoch root is derived, so there is nothing to disagree
about but the numbers. The other auditors recompute it and answer with an *approval*, which is
their account's EIP-712 signature; k of them make the root postable.

Of n auditors f = floor((n - 1) / 3) may be silent or lie, and n - f agree. A proposal belongs to a turn,
and so do its approvals: what one turn does not bring about, a later one may.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from sapo_protocol import merkle, secp256k1
from sapo_protocol.columns import Columns, Row
from sapo_protocol.constants import MAX_ACCOUNTS_PER_EPOCH, MAX_VALUES
from sapo_protocol.decoding import Bound, Fields, Schema
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.encoding import encode
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.rules import Rule

_MAX_AUDITORS = 64
MAX_TURN = 2**32 - 1
"""What auditors sign has 32 bits for it."""

_TALLY = Schema(Rule.TALLY_KEYS, Rule.TALLY_TYPES, required=5, most_values=MAX_VALUES)
_TALLY_ENTRIES = Bound(Rule.TALLY_ENTRIES, most=MAX_ACCOUNTS_PER_EPOCH)
_TALLY_ENTRY = Bound(Rule.TALLY_ENTRY_SIZE, least=2, most=2)
_PROPOSAL = Schema(Rule.PROPOSAL_KEYS, Rule.PROPOSAL_TYPES, required=5, optional=1, most_values=MAX_VALUES)
_TALLIES = Bound(Rule.PROPOSAL_TALLIES, least=1, most=_MAX_AUDITORS)
_SHARES = Bound(Rule.PROPOSAL_SHARES, most=MAX_ACCOUNTS_PER_EPOCH)
_SHARE = Bound(Rule.PROPOSAL_SHARE_SIZE, least=3, most=3)
_PROPOSAL_TURN = Bound(Rule.PROPOSAL_TURN, least=1, most=MAX_TURN)
_APPROVAL = Schema(Rule.APPROVAL_KEYS, Rule.APPROVAL_TYPES, required=5, optional=1)
_APPROVAL_TURN = Bound(Rule.APPROVAL_TURN, least=1, most=MAX_TURN)
_SIGNATURE = Bound(Rule.APPROVAL_SIGNATURE, least=secp256k1.SIGNATURE_BYTES, most=secp256k1.SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True)
class Tally:
    """One auditor's count of payable rollouts per account in one epoch, ascending by account."""

    node: NodeId
    account: Account
    epoch: int
    points: Sequence[tuple[Account, int]]
    evidence_root: Digest

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        entries = tuple((bytes(account), points) for account, points in self.points)
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: entries,
                4: bytes(self.evidence_root),
            }
        )


@dataclass(frozen=True, slots=True)
class Share:
    """One account's line in a proposal."""

    account: Account
    points: int
    cumulative: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """The shares that one auditor proposes to post, with the tallies that they were counted from.

    Attributes:
        turn: in which it is proposed; 0 is left out of the payload.
    """

    node: NodeId
    account: Account
    epoch: int
    tallies: tuple[ContentId, ...]
    shares: Sequence[Share]
    turn: int = 0

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        shares = tuple((bytes(share.account), share.points, share.cumulative) for share in self.shares)
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: tuple(map(bytes, self.tallies)),
                4: shares,
                **_turn(self.turn),
            }
        )

    def approval(self, content_id: ContentId) -> EpochApproval:
        """Return the statement with which an auditor approves this proposal, under its content id."""
        return EpochApproval(self.turn, self.root(content_id))

    def root(self, content_id: ContentId) -> EpochRoot:
        """Return the epoch root that this proposal, under its content id, stands for."""
        return EpochRoot(
            epoch=self.epoch,
            base_root=merkle.root(list(_base_leaves(self.shares))),
            contribution_root=merkle.root(
                [merkle.leaf(s.account, s.points) for s in self.shares if s.points]
            ),
            cumulative_root=merkle.root(cumulative_leaves(self.shares)),
            total=sum(share.points for share in self.shares),
            archive_digest=Digest(content_id),
        )


@dataclass(frozen=True, slots=True)
class Approval:
    """An auditor's signature on the epoch root of a proposal, and on the turn of both.

    Attributes:
        turn: that of the proposal; 0 is left out of the payload.
    """

    node: NodeId
    account: Account
    epoch: int
    proposal: ContentId
    signature: bytes
    turn: int = 0

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: bytes(self.proposal),
                4: self.signature,
                **_turn(self.turn),
            }
        )


def cumulative_leaves(shares: Sequence[Share]) -> list[Digest]:
    """Return the leaves of the cumulative tree."""
    return [merkle.leaf(share.account, share.cumulative) for share in shares]


def _base_leaves(shares: Sequence[Share]) -> Iterator[Digest]:
    """Yield the leaves of the cumulative tree that the shares add to; no account ever leaves it."""
    for share in shares:
        if share.cumulative > share.points:
            yield merkle.leaf(share.account, share.cumulative - share.points)


def earned_points(tallies: Sequence[Tally], points_per_epoch: int) -> dict[Account, int]:
    """Return what every account named in a tally has earned, before the epoch's budget: the clipped median.

    The lower median of an even number is taken: half of the auditors cannot raise a count.
    An account that a tally does not name counts zero in it.
    """
    counts = [dict(tally.points) for tally in tallies]
    return {
        account: min(points_per_epoch, median_low([count.get(account, 0) for count in counts]))
        for account in set[Account]().union(*counts)
    }


def settle(
    tallies: Sequence[Tally], previous: Mapping[Account, int], *, points_per_epoch: int, epoch_budget: int
) -> tuple[Share, ...]:
    """Return every account's share, ascending by account: what it has earned, added to what it had.

    Where all together have earned more than the budget, each one's points shrink by the same factor and
    are rounded down: whoever splits an account never has more than whoever does not, and may have less.

    Args:
        points_per_epoch: most that an account earns, as in the manifest.
        epoch_budget: most that the ledger grants in an epoch, as in its contract.
    """
    earned = earned_points(tallies, points_per_epoch)
    total = max(epoch_budget, sum(earned.values()))
    granted = {a: points * epoch_budget // total if total else 0 for a, points in earned.items()}
    shares = (
        Share(account, granted.get(account, 0), previous.get(account, 0) + granted.get(account, 0))
        for account in sorted({*previous, *earned})
    )
    return tuple(share for share in shares if share.cumulative)


def parse_tally(payload: bytes) -> Tally:
    """Return the tally in a payload.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _TALLY)
    node, account, epoch = _author(fields)
    points = Columns(_entry, 1, fields.rows(3, _TALLY_ENTRIES, _TALLY_ENTRY))
    _require_accounts_ascend(fields, points, Rule.TALLY_ORDER)
    evidence_root = fields.fixed(4, Digest)
    fields.require_end()
    return Tally(node=node, account=account, epoch=epoch, points=points, evidence_root=evidence_root)


def parse_proposal(payload: bytes) -> Proposal:
    """Return the proposal in a payload.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _PROPOSAL)
    node, account, epoch = _author(fields)
    tallies = fields.fixed_array(3, _TALLIES, ContentId)
    if any(a >= b for a, b in pairwise(tallies)):
        fields.refuse(Rule.PROPOSAL_TALLY_ORDER, "the tallies do not ascend")
    shares = Columns(Share, 2, fields.rows(4, _SHARES, _SHARE))
    _require_accounts_ascend(fields, shares, Rule.PROPOSAL_SHARE_ORDER)
    turn = fields.uint(5, _PROPOSAL_TURN) if fields.has(5) else 0
    fields.require_end()
    return Proposal(node=node, account=account, epoch=epoch, tallies=tallies, shares=shares, turn=turn)


def parse_approval(payload: bytes) -> Approval:
    """Return the approval in a payload.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _APPROVAL)
    node, account, epoch = _author(fields)
    proposal, signature = fields.fixed(3, ContentId), fields.data(4, _SIGNATURE)
    turn = fields.uint(5, _APPROVAL_TURN) if fields.has(5) else 0
    fields.require_end()
    return Approval(
        node=node, account=account, epoch=epoch, proposal=proposal, signature=signature, turn=turn
    )


def _turn(turn: int) -> Mapping[int, int]:
    """Return the field of a turn: none for 0, so that every object has one encoding."""
    return {5: turn} if turn else {}


def _author(fields: Fields) -> tuple[NodeId, Account, int]:
    return fields.fixed(0, NodeId), fields.fixed(1, Account), fields.uint(2)


def _entry(account: Account, points: int) -> tuple[Account, int]:
    return account, points


def _require_accounts_ascend(fields: Fields, rows: Columns[Row], rule: Rule) -> None:
    if any(a >= b for a, b in pairwise(map(rows.account, range(len(rows))))):
        fields.refuse(rule, "the accounts do not ascend")
