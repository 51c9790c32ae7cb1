"""Standing: each account's part of a whole account (units), by its bond or attestation if the gate requires
one.

Under a gate that requires an attestation, "bond" below means the number of an account's attestations. The
bonds of an epoch are read from the chain and given to this class. Messages of an account without units are
ignored without a penalty, since nodes may know the chain's newest blocks at different times. While the bonds
of an epoch are unknown, those of the newest known earlier epoch are used; if there are none, every account
counts in full.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from sapo_protocol.epochs import present_epoch
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.gate import AskingGate

_KEPT_EPOCHS: Final = 4
"""Epochs whose bonds are kept: those whose rollouts are accepted, and the one before, which is tallied."""

_WHOLE: Final = Fraction(1)
_NOTHING: Final = Fraction(0)


class Standing:
    """The units of accounts by epoch; without a gate that requires something every account counts in full.

    Args:
        own: this node's account, which always has standing on this node.

    Attributes:
        has_gate: whether accounts need a bond or an attestation.
        exempt: accounts (the auditors) whose certificates are accepted without a bond.
        revision: how often bonds were learned; changes whenever weights may have changed.
    """

    def __init__(self, manifest: Manifest, own: Account) -> None:
        self._manifest = manifest
        self._gate = manifest.gate if isinstance(manifest.gate, AskingGate) else None
        self.has_gate: Final = self._gate is not None
        self._own = own
        self._units: dict[int, Mapping[Account, Fraction]] = {}
        self.exempt: frozenset[Account] = frozenset()
        self.revision = 0

    def learn(self, epoch: int, bonded: Mapping[Account, int]) -> None:
        """Store the bonds of an epoch; accounts without one may be left out.

        Args:
            bonded: in the token's smallest denomination, or numbers of attestations.
        """
        if self._gate is None:
            return
        counted = {account: self._gate.units(amount) for account, amount in bonded.items() if amount}
        self._units[epoch] = counted
        self.revision += 1
        self._forget()

    def _forget(self) -> None:
        """Drop the oldest bonds, but not those that stand for epochs after them whose bonds are unknown."""
        begin = max(self._units) - _KEPT_EPOCHS + 1
        begin = max((known for known in self._units if known <= begin), default=begin)
        self._units = {epoch: units for epoch, units in self._units.items() if epoch >= begin}

    def is_known(self, epoch: int) -> bool:
        """Whether the bonds of an epoch are known, or none are needed."""
        return self._gate is None or epoch in self._units

    def units(self, epoch: int) -> Mapping[Account, Fraction] | None:
        """Return the units of every account with a bond in an epoch; None without a gate.

        Raises:
            KeyError: they are not known.
        """
        return None if self._gate is None else self._units[epoch]

    def units_of(self, account: Account, epoch: int) -> Fraction:
        """Return an account's units in an epoch, 0 to 1, as far as this node knows."""
        if self._gate is None:
            return _WHOLE
        newest = max((known for known in self._units if known <= epoch), default=None)
        return _WHOLE if newest is None else self._units[newest].get(account, _NOTHING)

    def is_bonded(self, account: Account, epoch: int) -> bool:
        """Whether an account has a bond in an epoch, as far as this node knows; never without a gate."""
        return any(known <= epoch for known in self._units) and bool(self.units_of(account, epoch))

    def units_now(self, account: Account) -> Fraction:
        """Return an account's units in the newest epoch whose bonds this node knows."""
        return self.units_of(account, max(self._units, default=0))

    def weight_of(self, account: Account) -> float:
        """Return an account's weight among newcomers: its present units."""
        return float(self.units_now(account))

    def require(self, account: Account, epoch: int) -> None:
        """Raise unless an account has standing in an epoch (stage 5).

        Raises:
            RemoteProtocolError: ``NO_BOND``.
        """
        if self._gate is not None and account != self._own and not self.units_of(account, epoch):
            raise RemoteProtocolError(
                Rule.AUTHOR_BONDED, f"account {account} does not meet the swarm's gate in epoch {epoch}"
            )

    def require_now(self, account: Account, now_seconds: float) -> None:
        """Raise unless an account's certificate is accepted now: it has standing, or is an auditor.

        Raises:
            RemoteProtocolError: ``NO_BOND``.
        """
        if account not in self.exempt:
            self.require(account, present_epoch(self._manifest, now_seconds))
