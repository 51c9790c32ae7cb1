"""How an epoch's contributions become one root: tally, proposal, approval.

Every auditor counts an epoch by itself and publishes a *tally*.
One of them publishes a *proposal*: the tallies it took, and for each account their clipped median and the
cumulative sum so far. Everything else of the epoch root is derived from it. The other auditors recompute the
proposal and answer with an *approval*, an EIP-712 signature of their account. With a quorum of them the root
can be posted on the ledger.

More accounts than fit into a message are listed on *pages*, which the message names by their digests.

Of n auditors f = floor((n - 1) / 3) may be silent or lie, and n - f agree. A proposal and its approvals
belong to a turn; if a turn brings no quorum, a later one may. What is live on the chain without a quorum is
approved again in later turns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from sapo_protocol import merkle, secp256k1
from sapo_protocol.columns import Columns, Row
from sapo_protocol.constants import MAX_FAMILIES, MAX_PAGE_ROWS, MAX_PAGES, MAX_VALUES
from sapo_protocol.decoding import Bound, Fields, Schema, Value, decode
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.encoding import encode
from sapo_protocol.epochs import tagged_digest
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.rules import Rule
from sapo_protocol.terms.difficulty import LevelRecord, Outcomes, Record

_MAX_AUDITORS = 64
MAX_TURN = 2**32 - 1
"""The signed statement has 32 bits for the turn."""

_TALLY_ENTRIES = Bound(Rule.TALLY_ENTRIES, maximum=MAX_PAGE_ROWS)
_TALLY_PAGES = Bound(Rule.TALLY_PAGES, minimum=1, maximum=MAX_PAGES)
_TALLY_ENTRY = Bound(Rule.TALLY_ENTRY_SIZE, minimum=2, maximum=2)
_TALLIES = Bound(Rule.PROPOSAL_TALLIES, minimum=1, maximum=_MAX_AUDITORS)
_SHARES = Bound(Rule.PROPOSAL_SHARES, maximum=MAX_PAGE_ROWS)
_SHARE_PAGES = Bound(Rule.PROPOSAL_PAGES, minimum=1, maximum=MAX_PAGES)
_SHARE = Bound(Rule.PROPOSAL_SHARE_SIZE, minimum=3, maximum=3)
_PROPOSAL_TURN = Bound(Rule.PROPOSAL_TURN, minimum=1, maximum=MAX_TURN)
_OUTCOME = Bound(Rule.TALLY_OUTCOME_SIZE, minimum=3, maximum=3)
_RECORD_ROW = Bound(Rule.PROPOSAL_RECORD_SIZE, minimum=4, maximum=4)
_TALLY = Rule.TALLY_KEYS, Rule.TALLY_TYPES, Rule.TALLY_RESERVED
_PROPOSAL = Rule.PROPOSAL_KEYS, Rule.PROPOSAL_TYPES, Rule.PROPOSAL_RESERVED
_APPROVAL = Schema(Rule.APPROVAL_KEYS, Rule.APPROVAL_TYPES, Rule.APPROVAL_RESERVED, required=5, optional=1)
_APPROVAL_TURN = Bound(Rule.APPROVAL_TURN, minimum=1, maximum=MAX_TURN)
_SIGNATURE = Bound(
    Rule.APPROVAL_SIGNATURE, minimum=secp256k1.SIGNATURE_BYTES, maximum=secp256k1.SIGNATURE_BYTES
)


@dataclass(frozen=True, slots=True)
class Tally:
    """One auditor's count of points per account in one epoch, ascending by account.

    Attributes:
        points: empty in a message that lists them on pages, until these are there.
        pages: digests of the pages; empty where the message holds the points.
        outcomes: of the groups of each family, in a swarm with ladders; else empty.
    """

    node: NodeId
    account: Account
    epoch: int
    points: Sequence[tuple[Account, int]]
    evidence_root: Digest
    pages: tuple[Digest, ...] = ()
    outcomes: tuple[Outcomes, ...] = ()

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        named = tuple(map(bytes, self.pages))
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: named or tuple((bytes(account), points) for account, points in self.points),
                4: bytes(self.evidence_root),
                **({5: tuple(map(tuple, self.outcomes))} if self.outcomes else {}),
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
        shares: of every account that was ever paid; empty in a message that lists them on pages, until these
            are there.
        turn: in which it is proposed; 0 is left out of the payload.
        pages: digests of the pages; empty where the message holds the shares.
        record: derived from the epoch's outcomes, in a swarm with ladders; else empty.
    """

    node: NodeId
    account: Account
    epoch: int
    tallies: tuple[ContentId, ...]
    shares: Sequence[Share]
    turn: int = 0
    pages: tuple[Digest, ...] = ()
    record: Record = ()

    def to_payload(self) -> bytes:
        """Return the payload to seal."""
        named = tuple(map(bytes, self.pages))
        return encode(
            {
                0: bytes(self.node),
                1: bytes(self.account),
                2: self.epoch,
                3: tuple(map(bytes, self.tallies)),
                4: named
                or tuple((bytes(each.account), each.points, each.cumulative) for each in self.shares),
                **_turn(self.turn),
                **({6: tuple(map(tuple, self.record))} if self.record else {}),
            }
        )

    def approval(self, content_id: ContentId) -> EpochApproval:
        """Return the statement with which an auditor approves this proposal, under its content id."""
        return EpochApproval(self.turn, self.root(content_id))

    def root(self, content_id: ContentId, root_of: merkle.RootOf = merkle.sum_root) -> EpochRoot:
        """Return the epoch root that this proposal, under its content id, stands for."""
        return EpochRoot(
            epoch=self.epoch,
            base_root=root_of(base_entries(self.shares)),
            contribution_root=root_of(point_entries(self.shares)),
            cumulative_root=root_of(cumulative_entries(self.shares)),
            total=sum(share.points for share in self.shares),
            archive_digest=Digest(content_id),
        )


@dataclass(frozen=True, slots=True)
class Approval:
    """An auditor's signature on the epoch root of a proposal, and on the turn in which it signs.

    Attributes:
        turn: that of the proposal, or a later one if the posting has lost its quorum; 0 is left out of the
            payload.
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


def cumulative_entries(shares: Sequence[Share]) -> merkle.Entries:
    """Return the entries of the tree of cumulative points."""
    return [(share.account, share.cumulative) for share in shares if share.cumulative]


def point_entries(shares: Sequence[Share]) -> merkle.Entries:
    """Return the entries of the tree of the epoch's own points."""
    return [(share.account, share.points) for share in shares if share.points]


def base_entries(shares: Sequence[Share]) -> merkle.Entries:
    """Return the entries of the tree of cumulative points before the epoch; no account ever leaves this
    tree."""
    return [
        (share.account, share.cumulative - share.points)
        for share in shares
        if share.cumulative > share.points
    ]


def to_pages(rows: Sequence[tuple[Account, int] | Share]) -> tuple[bytes, ...]:
    """Return the pages that list the rows of a tally or of a proposal; none where they fit into a message.

    Raises:
        ValueError: there are more than ``MAX_PAGES`` pages hold.
    """
    if len(rows) <= MAX_PAGE_ROWS:
        return ()
    cells = [_cells(row) for row in rows]
    pages = tuple(encode(tuple(cells[at : at + MAX_PAGE_ROWS])) for at in range(0, len(cells), MAX_PAGE_ROWS))
    if len(pages) > MAX_PAGES:
        raise ValueError(f"{len(rows)} accounts do not fit on {MAX_PAGES} pages")
    return pages


def page_digest(page: bytes) -> Digest:
    """Return the digest that names a page."""
    return tagged_digest("page", page)


def entries_on(pages: Sequence[bytes]) -> Sequence[tuple[Account, int]]:
    """Return the entries of a tally that its pages list.

    Raises:
        RemoteProtocolError: they list no entries, or not in order.
    """
    return _on_pages(_entry, 1, pages, Rule.TALLY_PAGES)


def shares_on(pages: Sequence[bytes]) -> Sequence[Share]:
    """Return the shares of a proposal that its pages list.

    Raises:
        RemoteProtocolError: they list no shares, or not in order.
    """
    return _on_pages(Share, 2, pages, Rule.PROPOSAL_PAGES)


def earned_points(tallies: Sequence[Tally], points_per_epoch: int) -> dict[Account, int]:
    """Return the points of every account named in a tally, before the epoch's budget: the clipped median.

    The lower median of an even number is taken: half of the auditors cannot raise a count.
    An account that a tally does not name counts zero in it.
    """
    counts = [dict(tally.points) for tally in tallies]
    lower = (len(counts) - 1) // 2
    return {
        account: min(points_per_epoch, sorted([count.get(account, 0) for count in counts])[lower])
        for account in set[Account]().union(*counts)
    }


def granted_points(
    tallies: Sequence[Tally], *, points_per_epoch: int, epoch_budget: int
) -> dict[Account, int]:
    """Return the granted points of every account named in a tally: as earned, or its part of the budget.

    Args:
        points_per_epoch, epoch_budget: as for ``settle``.
    """
    earned = earned_points(tallies, points_per_epoch)
    total = max(epoch_budget, sum(earned.values()))
    return {a: points * epoch_budget // total if total else 0 for a, points in earned.items()}


def settle(
    tallies: Sequence[Tally], previous: Mapping[Account, int], *, points_per_epoch: int, epoch_budget: int
) -> tuple[Share, ...]:
    """Return every account's share, ascending by account: its points, and their sum with the earlier ones.

    Where all together have earned more than the budget, each one's points shrink by the same factor and
    are rounded down, so splitting an account into several never earns more.

    Args:
        points_per_epoch: most that an account earns, as in the manifest.
        epoch_budget: most that the ledger grants in an epoch, as in its contract.
    """
    granted = granted_points(tallies, points_per_epoch=points_per_epoch, epoch_budget=epoch_budget)
    shares = (
        Share(account, granted.get(account, 0), previous.get(account, 0) + granted.get(account, 0))
        for account in sorted({*previous, *granted})
    )
    return tuple(share for share in shares if share.cumulative)


def parse_tally(payload: bytes, families: int | None = None) -> Tally:
    """Return the tally in a payload.

    Args:
        families: number of families of the suite if the manifest has ladders, 0 if not; None accepts both,
            for a tally that was admitted before.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _schema(_TALLY, 5, families))
    node, account, epoch = _author(fields)
    pages: tuple[Digest, ...] = ()
    points: Sequence[tuple[Account, int]] = ()
    if fields.lists_strings(3):
        pages = fields.fixed_array(3, _TALLY_PAGES, Digest)
    else:
        points = Columns(_entry, 1, fields.rows(3, _TALLY_ENTRIES, _TALLY_ENTRY))
        _require_accounts_ascend(fields, points, Rule.TALLY_ORDER)
    evidence_root = fields.fixed(4, Digest)
    rows = _rows(fields, 5, Rule.TALLY_OUTCOMES, _OUTCOME, families)
    outcomes = tuple(map(Outcomes._make, rows))
    fields.require_end()
    return Tally(
        node=node,
        account=account,
        epoch=epoch,
        points=points,
        evidence_root=evidence_root,
        outcomes=outcomes,
        pages=pages,
    )


def parse_proposal(payload: bytes, families: int | None = None) -> Proposal:
    """Return the proposal in a payload.

    Args:
        families: as for ``parse_tally``.

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _schema(_PROPOSAL, 6, families))
    node, account, epoch = _author(fields)
    tallies = fields.fixed_array(3, _TALLIES, ContentId)
    if any(a >= b for a, b in pairwise(tallies)):
        fields.refuse(Rule.PROPOSAL_TALLY_ORDER, "the tallies do not ascend")
    pages: tuple[Digest, ...] = ()
    shares: Sequence[Share] = ()
    if fields.lists_strings(4):
        pages = fields.fixed_array(4, _SHARE_PAGES, Digest)
    else:
        shares = Columns(Share, 2, fields.rows(4, _SHARES, _SHARE))
        _require_accounts_ascend(fields, shares, Rule.PROPOSAL_SHARE_ORDER)
    turn = fields.uint(5, _PROPOSAL_TURN) if fields.has(5) else 0
    rows = _rows(fields, 6, Rule.PROPOSAL_RECORD, _RECORD_ROW, families)
    record = tuple(map(LevelRecord._make, rows))
    fields.require_end()
    return Proposal(
        node=node,
        account=account,
        epoch=epoch,
        tallies=tallies,
        shares=shares,
        turn=turn,
        pages=pages,
        record=record,
    )


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


@lru_cache
def _schema(rules: tuple[Rule, Rule, Rule], last: int, families: int | None) -> Schema:
    """Return the schema of a tally or a proposal, whose last key belongs to swarms with ladders alone."""
    foreign = 1 if families == 0 else 0
    return Schema(
        *rules,
        required=5,
        optional=last - 4 - foreign,
        foreign=foreign,
        max_values=MAX_VALUES,
        demanded=frozenset({last} if families else ()),
    )


def _rows(
    fields: Fields, key: int, count: Rule, width: Bound, families: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield the rows of the field that only swarms with ladders have, one per family of the suite."""
    if families != 0 and fields.has(key):
        bound = Bound(count, minimum=families or 1, maximum=families or MAX_FAMILIES)
        yield from fields.number_rows(key, bound, width)


def _turn(turn: int) -> Mapping[int, int]:
    """Return the field of a turn: none for 0, so that every object has one encoding."""
    return {5: turn} if turn else {}


def _author(fields: Fields) -> tuple[NodeId, Account, int]:
    return fields.fixed(0, NodeId), fields.fixed(1, Account), fields.uint(2)


def _entry(account: Account, points: int) -> tuple[Account, int]:
    return account, points


def _cells(row: tuple[Account, int] | Share) -> tuple[bytes, *tuple[int, ...]]:
    if isinstance(row, Share):
        return bytes(row.account), row.points, row.cumulative
    account, points = row
    return bytes(account), points


def _on_pages(build: Callable[..., Row], numbers: int, pages: Sequence[bytes], rule: Rule) -> Columns[Row]:
    rows = Columns(build, numbers, (cells for page in pages for cells in _rows_on(page, numbers, rule)))
    if any(a >= b for a, b in pairwise(map(rows.account, range(len(rows))))):
        raise RemoteProtocolError(rule, "the accounts on the pages do not ascend")
    return rows


def _rows_on(page: bytes, numbers: int, rule: Rule) -> Iterator[tuple[Account, Sequence[int]]]:
    """Yield the rows of a page, each an account and ``numbers`` numbers."""
    rows = decode(page)
    if not isinstance(rows, tuple) or not 1 <= len(rows) <= MAX_PAGE_ROWS:
        raise RemoteProtocolError(rule, f"a page holds 1 to {MAX_PAGE_ROWS} rows")
    for row in rows:
        match row:
            case (bytes(account), *values) if len(account) == Account.SIZE and len(values) == numbers:
                yield Account(account), [_whole(value, rule) for value in values]
            case _:
                raise RemoteProtocolError(rule, f"a row of a page is an account and {numbers} numbers")


def _whole(value: Value, rule: Rule) -> int:
    if not isinstance(value, int):
        raise RemoteProtocolError(rule, "a row of a page holds a value that is not an unsigned integer")
    return value


def _require_accounts_ascend(fields: Fields, rows: Columns[Row], rule: Rule) -> None:
    if any(a >= b for a, b in pairwise(map(rows.account, range(len(rows))))):
        fields.refuse(rule, "the accounts do not ascend")
