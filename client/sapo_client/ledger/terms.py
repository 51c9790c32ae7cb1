"""The terms in a swarm's contracts, compared with the manifest; and how long their treasury lasts.

Every function blocks: call it in a worker thread.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eth_utils import to_checksum_address

from sapo_client.ledger.artifact import CONTRACTS, EARLIER, LEDGER_VERSION, load
from sapo_client.ledger.contract import Contract, Distributor, EpochLedgerContract, Registry
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.records import EpochRecord, PayoutAddress
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest

_HINT: Final = "ask whoever gave you the manifest for the right one"

RATE_EPOCHS: Final = 24
"""Number of final epochs from which the treasury's rate is computed: a day of hourly ones."""


def require_code(contract: Contract) -> int:
    """Return the version of a contract's code.

    Raises:
        LedgerError: the code is not this contract's.
    """
    version = contract.version()
    if version is None:
        raise LedgerError(
            f"there is no {contract.NAME} of this version at {contract.address}",
            hint="use the manifest's chain, and the version of sapo that the swarm uses",
        )
    return version


def require_clock(ledger: EpochLedgerContract, manifest: Manifest) -> None:
    """Raise unless a ledger of any version counts its epochs as the manifest does.

    Raises:
        LedgerError: it does not.
    """
    if ledger.clock() != (manifest.genesis_seconds, manifest.epoch_seconds):
        raise LedgerError("the ledger counts its epochs by another clock than the manifest", hint=_HINT)


def require_terms(ledger: EpochLedgerContract, manifest: Manifest) -> None:
    """Raise unless a ledger of the current version has the manifest's terms, and contracts that fit together.

    Code alone proves little: whoever deploys a contract may fill its immutables with any address.

    Raises:
        LedgerError: they differ; the text names the term.
    """
    distributor, verifier, vault = ledger.distributor(), ledger.verifier(), ledger.vault()
    for name, found, wanted in (
        ("the distributor's ledger", distributor.ledger(), ledger.address),
        ("the verifier's ledger", verifier.ledger(), ledger.address),
        ("the verifier's distributor", verifier.distributor(), distributor.address),
        ("the account that may slash bonds", vault.slasher(), verifier.address),
        ("the token of bonds", vault.token().address, distributor.token().address),
    ):
        if found != wanted:
            raise LedgerError(
                f"{name} is {found}, not {wanted}: the contracts do not fit together", hint=_HINT
            )
    cap, expected = verifier.points_cap(), manifest.points_cap
    if cap != expected:  # an honest count above the contract's cap would cost auditors their bonds
        raise LedgerError(
            f"the ledger allows an account {cap} points per epoch, the manifest {expected}", hint=_HINT
        )
    auditors, quorum = ledger.auditors()
    if not 1 <= quorum <= len(auditors.founders):
        raise LedgerError(f"{quorum} of {len(auditors.founders)} auditors cannot agree", hint=_HINT)
    if (exit_seconds := vault.exit_seconds()) <= ledger.challenge_seconds():
        raise LedgerError(
            f"a bond leaves after {exit_seconds} s, before the window for challenges is over", hint=_HINT
        )


def require_contracts(registry: Registry, ledger: EpochLedgerContract, manifest: Manifest) -> int:
    """Return the version of a swarm's ledger; raise unless its contracts match the manifest.

    Raises:
        LedgerError: they do not match.
    """
    require_code(registry)
    version = require_code(ledger)
    for created in (ledger.distributor(), ledger.verifier(), ledger.vault()):
        require_code(created)
    require_clock(ledger, manifest)
    if version == LEDGER_VERSION:
        require_terms(ledger, manifest)
        _require_enrolment(registry, ledger)
    return version


def _require_enrolment(registry: Registry, ledger: EpochLedgerContract) -> None:
    """Raise unless whoever registers can claim from the ledger's distributor.

    Raises:
        LedgerError: the registry enrols accounts elsewhere, or is of an earlier version.
    """
    wanted = ledger.distributor().address
    if registry.version() != LEDGER_VERSION or registry.distributor() != wanted:
        raise LedgerError(
            f"the registry does not enrol accounts at {wanted}, so none could claim what it earns", hint=_HINT
        )


def bonded(ledger: EpochLedgerContract, auditors: Iterable[Account]) -> frozenset[Account]:
    """Return the auditors whose bond suffices now, so that a posting may carry their signatures."""
    vault, needed = ledger.vault(), ledger.auditor_bond()
    return frozenset(auditor for auditor in auditors if vault.bonded(auditor) >= needed)


def is_punishable(ledger: EpochLedgerContract, auditor: Account, epoch: int) -> bool:
    """Whether a proof of two signatures in an epoch costs an auditor its bond, or a signature on a posting.

    Otherwise the contract accepts the same proof any number of times, and nobody but its senders pays.
    """
    stake = ledger.vault().stake(auditor)
    if stake.bonded + stake.exiting >= ledger.auditor_bond():
        return True
    live = ledger.live()
    if live is None or live.root.epoch != epoch:
        return False
    signed = (who for place, who in enumerate(ledger.auditors_in(epoch)) if live.signers >> place & 1)
    return auditor in signed


def contract_name(rpc: Rpc, account: Account) -> str | None:
    """Return which contract of this package, in any version, the code at an address is; None if none."""
    where = to_checksum_address(account)
    code = rpc.agree(lambda web3: bytes(web3.eth.get_code(where)), f"the code at {where}")
    known = ((name, version) for name in CONTRACTS for version in (LEDGER_VERSION, *EARLIER.get(name, ())))
    return next((name for name, version in known if load(name, version).is_code(code)), None)


def read_payout(distributor: Distributor, account: Account) -> PayoutAddress:
    """Return the address that an account's claims go to, and the one that was announced."""
    announced, from_seconds = distributor.payout_change(account)
    return PayoutAddress(distributor.payout(account), announced if any(announced) else None, from_seconds)


@dataclass(frozen=True, slots=True)
class Treasury:
    """The distributor's balance and obligations, in the token's smallest unit.

    Attributes:
        tokens: its balance.
        owed: granted and not claimed yet.
        tokens_per_point: price of a point.
        points_per_epoch: granted on average in the last epochs.
    """

    tokens: int
    owed: int
    tokens_per_point: int
    points_per_epoch: float

    @property
    def epochs_left(self) -> float | None:
        """Return for how many more epochs it can pay everything; none if nothing is granted at present."""
        if not self.points_per_epoch or not self.tokens_per_point:
            return None
        return max(0, self.tokens - self.owed) / (self.points_per_epoch * self.tokens_per_point)

    def covers(self, points: int) -> bool:
        """Whether a claim of so many points can be paid now."""
        return points * self.tokens_per_point <= self.tokens

    def in_words(self, epoch_seconds: int) -> str:
        """Return a description of how long it can pay."""
        if self.owed > self.tokens:
            return "it is empty: less than what was granted and not claimed"
        if self.epochs_left is None:
            return "nothing was granted lately"
        days = self.epochs_left * epoch_seconds / 86_400
        return f"about {days:,.1f} days at this rate ({self.epochs_left:,.0f} epochs)"


def read_treasury(distributor: Distributor, recent: Sequence[EpochRecord]) -> Treasury:
    """Return the treasury of a distributor.

    Args:
        recent: the last final epochs, in any order.
    """
    per_point = distributor.tokens_per_point()
    epochs = [record.root.epoch for record in recent]
    granted = sum(record.root.total for record in recent)
    return Treasury(
        tokens=distributor.token().balance(distributor.address),
        owed=(distributor.granted_points() - distributor.paid_points()) * per_point,
        tokens_per_point=per_point,
        points_per_epoch=granted / (max(epochs) - min(epochs) + 1) if epochs else 0.0,
    )
