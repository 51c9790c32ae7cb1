"""The vote of one epoch's audited accounts on whether failed checks are this node's own fault.

An audit changes the vote of one account only, so it costs the same among a few accounts and among thousands:
an attacker can create thousands at no cost.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from sapo_protocol.identifiers import Account


@dataclass
class _Count:
    """A set of accounts, and its subset that carries weight."""

    every_account: set[Account] = field(default_factory=set)
    established: set[Account] = field(default_factory=set)

    def put(self, account: Account, *, belongs: bool, carries_weight: bool) -> None:
        for members, member in (
            (self.every_account, belongs),
            (self.established, belongs and carries_weight),
        ):
            (members.add if member else members.discard)(account)


class FailureVotes:
    """The accounts audited in an epoch, and which checks each fails in more than half of its audits.

    Args:
        carries_weight: whether enough groups of an account passed for it to be weighed.
    """

    def __init__(self, carries_weight: Callable[[Account], bool]) -> None:
        self._carries_weight = carries_weight
        self._audits: Counter[Account] = Counter()
        self._failures: defaultdict[str, Counter[Account]] = defaultdict(Counter)
        self._failing: defaultdict[str, _Count] = defaultdict(_Count)
        self._voters = _Count()

    def note(self, account: Account, failed: str | None, audits: int = 1) -> None:
        """Record audits that an account passed (``failed`` is None), or failed for one reason."""
        self._audits[account] += audits
        if failed is not None:
            self._failures[failed][account] += audits
        self.recount(account)

    def recount(self, account: Account) -> None:
        """Count an account's votes again; call it also when the account may have begun to carry weight."""
        if not self._audits[account]:
            return
        weighs = self._carries_weight(account)
        self._voters.put(account, belongs=True, carries_weight=weighs)
        for reason, failures in self._failures.items():
            fails = 2 * failures[account] > self._audits[account]
            self._failing[reason].put(account, belongs=fails, carries_weight=weighs)

    def failed(self) -> tuple[str, ...]:
        """Return the reasons for which at least one account failed."""
        return tuple(sorted(self._failures))

    def count(self, reason: str, min_established: int) -> tuple[int, int]:
        """Return how many of the voters fail a check, and how many voters there are.

        The voters are the established accounts, or all accounts if fewer than ``min_established`` are.
        """
        failing = self._failing.get(reason, _Count())
        if len(self._voters.established) >= min_established:
            return len(failing.established), len(self._voters.established)
        return len(failing.every_account), len(self._voters.every_account)
