"""The epoch ledger's rules in Python: postings, rejections, finality, and slashed bonds.

It leaves out tokens, claims and proofs over leaves. ``test_ledger_model.py`` compares it with the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sapo_client.node.auditing.agreement import ChainState
from sapo_protocol import merkle, secp256k1
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, Digest


@dataclass
class LedgerModel:
    """One ledger with its auditors' bonds.

    Attributes:
        final: the roots of final epochs, oldest first.
        posted_seconds: when the live posting came.
        slashed: how often each account has lost its bond.
    """

    domain: Domain
    auditors: tuple[Account, ...]
    quorum: int
    genesis_seconds: float
    epoch_seconds: float
    challenge_seconds: float
    epoch_budget: int
    final: list[EpochRoot] = field(default_factory=list)
    live: EpochRoot | None = None
    slashed: dict[Account, int] = field(default_factory=dict)
    _signers: set[Account] = field(default_factory=set)
    posted_seconds: float = 0.0
    _next_epoch: int = 0
    _rejected: set[Digest] = field(default_factory=set)
    _unbonded: set[Account] = field(default_factory=set)
    _emptied: set[Account] = field(default_factory=set)
    _equivocated: set[tuple[Account, int, int]] = field(default_factory=set)

    @property
    def base_root(self) -> Digest:
        """The cumulative root of the last final epoch."""
        return self.final[-1].cumulative_root if self.final else merkle.EMPTY_ROOT

    def state(self) -> ChainState:
        """Return what a node reads."""
        return ChainState(
            last=self.final[-1] if self.final else None,
            live=self.live,
            granted_points=sum(root.total for root in self.final),
            bonded=frozenset(self.auditors) - self._unbonded,
            next_epoch=self._next_epoch,
            rejected=frozenset(self._rejected),
            live_signatures=len(self._signers),
        )

    def post(self, now_seconds: float, statement: EpochApproval, signatures: Sequence[bytes]) -> bool:
        """Take a posting; return False where the contract reverts."""
        root = statement.root
        ended_seconds = self.genesis_seconds + (root.epoch + 1) * self.epoch_seconds
        if root.epoch < self._next_epoch or now_seconds < ended_seconds:
            return False
        is_live = self.live == root
        if not is_live and self._is_blocked(now_seconds):
            return False
        if root.base_root != self.base_root or root.total > self.epoch_budget:
            return False
        sums = [_sum(tree) for tree in (root.base_root, root.contribution_root, root.cumulative_root)]
        if sums[1:] != [root.total, sums[0] + root.total]:
            return False
        digest = statement.digest(self.domain)
        signers = [secp256k1.recover(digest, signature) for signature in signatures]
        known = [signer for signer in signers if signer is not None and signer in self.auditors]
        if (
            len(known) < len(signers)
            or known != sorted(set(known))
            or root.digest(self.domain) in self._rejected
        ):
            return False
        counted = set(known) - self._unbonded
        if len(counted) < self.quorum:
            return False
        if is_live:  # its window does not restart
            is_more = not counted <= self._signers
            self._signers |= counted
            return is_more
        self.live, self._signers, self.posted_seconds = root, counted, now_seconds
        return True

    def finalise(self, now_seconds: float) -> bool:
        """Make the live posting final; return False where the contract reverts."""
        if self.live is None or now_seconds < self.posted_seconds + self.challenge_seconds:
            return False
        if len(self._signers) < self.quorum:
            return False
        self.final.append(self.live)
        self._next_epoch = self.live.epoch + 1
        self.live = None
        return True

    def recall(self) -> None:
        """Recall the last final epoch: a question about its leaves was not answered."""
        self.final.pop()
        self.live = None

    def prove_equivocation(self, a: EpochApproval, b: EpochApproval, signatures: tuple[bytes, bytes]) -> bool:
        """Slash an auditor that signed two roots in one turn; return False where the contract reverts."""
        signer = secp256k1.recover(a.digest(self.domain), signatures[0])
        same = (a.turn, a.root.epoch) == (b.turn, b.root.epoch) and a != b
        if not same or signer is None or signer != secp256k1.recover(b.digest(self.domain), signatures[1]):
            return False
        place = signer, a.root.epoch, a.turn
        if signer not in self.auditors or place in self._equivocated:
            return False
        if signer not in self._emptied:  # a second signature that cost no bond is not paid for
            self._equivocated.add(place)
        self._slash(signer)
        if self.live is not None and self.live.epoch == a.root.epoch:
            self._signers.discard(signer)
        return True

    def reject(self) -> None:
        """Reject the live posting permanently and slash its signers: it was proven false."""
        self.hide()
        for signer in self._signers:
            self._slash(signer)

    def hide(self) -> None:
        """Reject the live posting permanently: a question about its leaves was not answered."""
        assert self.live is not None
        self._rejected.add(self.live.digest(self.domain))
        self.live = None

    def leave(self, account: Account) -> None:
        """Withdraw an auditor's bond: its signatures no longer count."""
        self._unbonded.add(account)

    def bond(self, account: Account) -> None:
        """Bond an auditor again."""
        self._unbonded.discard(account)
        self._emptied.discard(account)

    def losses(self) -> Mapping[Account, int]:
        """Return how often each account has lost its bond."""
        return dict(self.slashed)

    def _is_blocked(self, now_seconds: float) -> bool:
        """Whether another posting is live; one epoch after its window it can be replaced."""
        expires_seconds = self.posted_seconds + self.challenge_seconds + self.epoch_seconds
        return self.live is not None and now_seconds < expires_seconds

    def _slash(self, account: Account) -> None:
        if account not in self._unbonded:
            self.slashed[account] = self.slashed.get(account, 0) + 1
        self._unbonded.add(account)
        self._emptied.add(account)


def _sum(root: Digest) -> int:
    """Return the sum at the end of the root of a points tree."""
    return int.from_bytes(root[24:], "big")
