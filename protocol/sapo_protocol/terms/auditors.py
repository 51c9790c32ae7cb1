"""The auditors of a swarm by epoch: those that its ledger was deployed with, and their replacements."""

from dataclasses import dataclass

from sapo_protocol.constants import CONTRIBUTION_EPOCHS
from sapo_protocol.identifiers import Account
from sapo_protocol.terms.successor import NOTICE_EPOCHS


@dataclass(frozen=True, slots=True)
class Replacement:
    """An auditor and who takes its place from an epoch on."""

    epoch: int
    leaving: Account
    entering: Account


@dataclass(frozen=True, slots=True)
class Auditors:
    """The accounts whose signatures count, by epoch.

    Attributes:
        founders: in epoch 0, ascending.
        replacements: as the ledger announces them, ascending by epoch.
    """

    founders: tuple[Account, ...] = ()
    replacements: tuple[Replacement, ...] = ()

    def of(self, epoch: int) -> tuple[Account, ...]:
        """Return the auditors of an epoch, ascending: as many in every epoch."""
        if not self.replacements:
            return self.founders
        accounts = set(self.founders)
        for replacement in self.replacements:
            if replacement.epoch <= epoch:
                accounts = accounts - {replacement.leaving} | {replacement.entering}
        return tuple(sorted(accounts))

    @property
    def all_accounts(self) -> frozenset[Account]:
        """All who are auditors in any epoch."""
        return frozenset(self.founders) | {each.entering for each in self.replacements}

    def at_work(self, epoch: int) -> frozenset[Account]:
        """Return the auditors that exchange contributions in an epoch: for past epochs, or as announced
        successors."""
        return self.within(max(0, epoch - CONTRIBUTION_EPOCHS), epoch + NOTICE_EPOCHS)

    def within(self, first: int, last: int) -> frozenset[Account]:
        """Return those who are auditors in any of the epochs, the last one included."""
        changes = (each.epoch for each in self.replacements if first < each.epoch <= last)
        return frozenset().union(*map(self.of, (first, *changes)))
