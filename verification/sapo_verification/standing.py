"""Standing: what each account counts by its bond or attestation, where the manifest's gate asks for one.

Under a gate that asks for an attestation, an account's bond below is the number of its attestations.
The bonds of an epoch are facts of the chain, given by whoever reads it. An account without units is ignored
and never blamed, for a node may know the chain's newest blocks earlier or later than its neighbours. While
the bonds of an epoch are not known, those of the newest earlier epoch count that are; without any, everybody.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.gate import AskingGate

_KEPT_EPOCHS: Final = 4
"""Epochs whose bonds are kept: those of timely rollouts, and that of the tally, which is the epoch before."""

_WHOLE: Final = Fraction(1)
_NOTHING: Final = Fraction(0)


class Standing:
    """What accounts count, by epoch; without a gate that asks for a bond every account counts in full.

    Args:
        own: this node's account, whose messages this node itself always takes.

    Attributes:
        has_gate: whether accounts need a bond or an attestation.
        exempt: accounts whose certificates count without a bond: the auditors'.
        revision: how often bonds were learned; while it stays, so do all weights.
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
        """Take the bonds of an epoch; accounts without any may be left out.

        Args:
            bonded: in the token's smallest part, or numbers of attestations.
        """
        if self._gate is None:
            return
        counted = {account: self._gate.units(amount) for account, amount in bonded.items() if amount}
        self._units[epoch] = counted
        self.revision += 1
        for old in [known for known in self._units if known <= max(self._units) - _KEPT_EPOCHS]:
            del self._units[old]

    def is_known(self, epoch: int) -> bool:
        """Whether the bonds of an epoch are known, or none are needed."""
        return self._gate is None or epoch in self._units

    def units(self, epoch: int) -> Mapping[Account, Fraction] | None:
        """Return what every account counts in an epoch, those without a bond left out; None without a gate.

        Raises:
            KeyError: they are not known.
        """
        return None if self._gate is None else self._units[epoch]

    def units_of(self, account: Account, epoch: int) -> Fraction:
        """Return what an account counts in an epoch, 0 to 1, as far as this node knows."""
        if self._gate is None:
            return _WHOLE
        newest = max((known for known in self._units if known <= epoch), default=None)
        return _WHOLE if newest is None else self._units[newest].get(account, _NOTHING)

    def is_bonded(self, account: Account, epoch: int) -> bool:
        """Whether an account has a bond in an epoch, as far as this node knows; nobody has without a gate."""
        return any(known <= epoch for known in self._units) and bool(self.units_of(account, epoch))

    def units_now(self, account: Account) -> Fraction:
        """Return what an account counts in the newest epoch that this node knows."""
        return self.units_of(account, max(self._units, default=0))

    def weight_of(self, account: Account) -> float:
        """Return an account's weight among newcomers: what it counts now."""
        return float(self.units_now(account))

    def require(self, account: Account, epoch: int) -> None:
        """Raise unless an account has standing in an epoch (stage 5).

        Raises:
            RemoteProtocolError: ``NO_BOND``.
        """
        if self._gate is not None and account != self._own and not self.units_of(account, epoch):
            raise RemoteProtocolError(
                Rule.AUTHOR_BONDED, f"account {account} has nothing behind the gate in epoch {epoch}"
            )

    def require_now(self, account: Account, now_seconds: float) -> None:
        """Raise unless an account's certificate counts now: it has standing, or is an auditor's.

        Raises:
            RemoteProtocolError: ``NO_BOND``.
        """
        if account not in self.exempt:
            self.require(account, epoch_at(self._manifest, max(now_seconds, self._manifest.genesis_seconds)))
