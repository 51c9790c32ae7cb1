"""Waiting times of accounts after others' text has done harm of which nobody knows the author.

Each account on whose text the policy was trained may have done it. If all of them waited for the same time, a
few accounts that do harm whenever their text is used would keep that of everybody out. So accounts wait one
by one: an account that was trained while harm was done waits for a random number of checks, and the range
doubles each time. Who was trained without harm until the policy became its own shadow is *cleared* until harm
is done again: this is blamed on accounts that are not cleared, and on cleared ones only if there are no
others. An account that does harm each time waits ever longer, and one that is cleared first has to teach
without harm first.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sapo_protocol.identifiers import Account

MAX_DOUBLINGS: Final = 7
"""Harm in a row that makes an account wait longer: 1 to 128 checks then."""

MAX_ACCOUNTS: Final = 4096
"""Accounts that are remembered; beyond it those that were blamed or trained first are forgotten."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """An account that was trained while harm was done.

    Attributes:
        setbacks: how often, since it last taught without harm.
        waits: checks until its text is used again.
    """

    account: Account
    setbacks: int
    waits: int


@dataclass(frozen=True, slots=True)
class AccountWaits:
    """Accounts whose text was trained.

    Attributes:
        used: since the policy was last rolled back, the first ones first.
        cleared: those whose text was trained until the policy became its own shadow, and not while harm was
            done since.
        blamed: those to which harm was blamed.
    """

    used: tuple[Account, ...] = ()
    cleared: tuple[Account, ...] = ()
    blamed: tuple[Blamed, ...] = ()

    @property
    def waiting(self) -> frozenset[Account]:
        """The accounts whose text is not used."""
        return frozenset(each.account for each in self.blamed if each.waits)

    @property
    def suspects(self) -> frozenset[Account]:
        """The accounts to which harm would be blamed now."""
        return frozenset(self.used) - frozenset(self.cleared) or frozenset(self.used)

    def using(self, accounts: Iterable[Account]) -> AccountWaits:
        """Return the state after text of these accounts was trained."""
        return replace(self, used=_joined(self.used, accounts))

    def passed(self) -> AccountWaits:
        """Return the state after a check without harm."""
        blamed = (replace(each, waits=max(0, each.waits - 1)) for each in self.blamed)
        return replace(self, blamed=tuple(blamed))

    def taught(self) -> AccountWaits:
        """Return the state after the policy became its own shadow without harm."""
        used = frozenset(self.used)
        eased = [
            replace(each, setbacks=each.setbacks - 1) if each.account in used else each
            for each in self.blamed
        ]
        blamed = tuple(each for each in eased if each.setbacks)
        return replace(self, cleared=_joined(self.cleared, self.used), blamed=blamed)

    def harmed(self, rng: random.Random) -> AccountWaits:
        """Return the state after harm: its suspects wait.

        Args:
            rng: draws the waiting times; others cannot predict them.
        """
        suspects, before = self.suspects, {each.account: each.setbacks for each in self.blamed}
        others = [each for each in self.blamed if each.account not in suspects]
        blamed = []
        for account in sorted(suspects):
            setbacks = min(before.get(account, 0) + 1, MAX_DOUBLINGS)
            blamed.append(Blamed(account, setbacks, rng.randint(1, 2**setbacks)))
        used = frozenset(self.used)  # also those to which it is not blamed: new accounts take no blame twice
        cleared = tuple(each for each in self.cleared if each not in used)
        return AccountWaits(cleared=cleared, blamed=(*others, *blamed)[-MAX_ACCOUNTS:])


def _joined(known: tuple[Account, ...], more: Iterable[Account]) -> tuple[Account, ...]:
    """Return accounts in the order in which they came last, without duplicates."""
    new = dict.fromkeys(more)
    return (*(each for each in known if each not in new), *new)[-MAX_ACCOUNTS:]
