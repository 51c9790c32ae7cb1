"""The gate contract that a manifest names: the accounts' bonds, or their attestations, as of a block."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eth_utils import keccak, to_checksum_address
from web3 import Web3
from web3.types import FilterParams

from sapo_client.ledger.attestations import AttestationHistory, attestations_of, require_service
from sapo_client.ledger.contract import Bonds, EpochLedgerContract
from sapo_client.ledger.errors import BondsHidden, LedgerError, NotYet
from sapo_client.ledger.logs import LOG_CHUNKS
from sapo_client.ledger.records import Tip
from sapo_client.ledger.rpc import Answer, Rpc
from sapo_client.ledger.transactions import Call
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import BondGate, EasGate, points_cap

_EMPTY: Final = Digest((1).to_bytes(32, "big"))
"""``EMPTY_HISTORY``: what comes before the first change."""

_WORD: Final = 32
_WORDS: Final = 4
"""ABI types of an event's data: account, amount, hash and block of the change before."""

_CHANGED: Final = keccak(text="BondChanged(address,uint256,bytes32,uint256)")


@dataclass(frozen=True, slots=True)
class Accusation:
    """How many auditors have accused an account of an equivocation in an epoch."""

    accusers: int
    slashed: bool


class AccountBond(Bonds):
    """``AccountBond``: what the gate of a swarm counts."""

    NAME = "AccountBond"

    def accuse(self, account: Account, epoch: int, proof: Digest) -> bytes:
        """Return call data that accuses an account of an equivocation; only a bonded auditor may send it."""
        return self._encode("accuse", to_checksum_address(account), epoch, bytes(proof))

    def has_accused(self, auditor: Account, account: Account, epoch: int) -> bool:
        """Whether an auditor has accused an account of an equivocation in an epoch."""
        addresses = to_checksum_address(auditor), to_checksum_address(account)
        return bool(self._call("hasAccused", *addresses, epoch))

    def accusation(self, account: Account, epoch: int) -> Accusation:
        """Return how many auditors have accused an account of an equivocation in an epoch."""
        return Accusation(*self._call("accusationOf", to_checksum_address(account), epoch))

    def ledger(self) -> Account:
        """Return the ledger whose auditors slash."""
        return Account.from_hex(self._call("ledger"))

    def tip(self) -> Tip:
        """Return the block of the newest change's event, and that event's hash."""
        history, block = self._call("lastChange")
        return Tip(Digest(history), block)

    def changes(self, first_block: int, last_block: int) -> list[Answer[tuple[bytes, ...]]]:
        """Return the data of the ``BondChanged`` events of some blocks, as each endpoint reports them."""
        wanted: FilterParams = {
            "address": to_checksum_address(self.address),
            "fromBlock": _block(first_block),
            "toBlock": _block(last_block),
            "topics": [_CHANGED],
        }
        return self._rpc.each(lambda web3: _data(web3, wanted, last_block))


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of an account's bond, with the position of the change before it."""

    account: Account
    bonded: int
    before: Tip


class BondHistory:
    """The bonds of all accounts as of a block, from the contract's changes, each read once.

    The endpoints agree on one hash, which proves the newest change; that holds the hash of the one before. So
    no endpoint can change or leave out a bond unseen, and no state of an old block is asked for, which few
    endpoints keep. Blocks in which nothing changed are skipped: an epoch costs a question for the newest
    change and at most one for logs to a thousand blocks, whatever the number of accounts.

    In memory are the bonds as of the last block but one that was asked for, and the changes since.
    """

    def __init__(self, contract: AccountBond) -> None:
        self._contract = contract
        self._lock = threading.Lock()
        self._base: dict[Account, int] = {}
        self._base_tip = Tip(_EMPTY, 0)
        self._asked = 0
        self._known: dict[Digest, _Change] = {}

    def at(self, block: int) -> Mapping[Account, int]:
        """Return the counted bond of each account that has one in the state after a block.

        Args:
            block: a settled block, which no reorganisation will remove.

        Raises:
            NotYet, Disagreement: the endpoints do not agree on the newest change.
            BondsHidden: none of them shows a change that is proven.
        """
        with self._lock:
            changes = self._changes()
            while block < self._base_tip.block:  # earlier than what is kept
                self._forget()
                changes = self._changes()
            bonds = dict(self._base)
            for at, change in changes:
                if at.block <= block:
                    _apply(bonds, change)
            self._fold(changes, block)
            return bonds

    def _changes(self) -> list[tuple[Tip, _Change]]:
        """Return the changes after the base, oldest first, each with its position."""
        found: list[tuple[Tip, _Change]] = []
        newest = tip = self._contract.tip()
        while tip.history != self._base_tip.history:
            if tip.history == _EMPTY or tip.block < self._base_tip.block:  # a reorganisation removed the base
                self._forget()
                found, tip = [], newest
                continue
            if tip.history not in self._known:
                self._read(tip)
            change = self._known[tip.history]
            found.append((tip, change))
            tip = change.before
        return found[::-1]

    def _fold(self, changes: list[tuple[Tip, _Change]], block: int) -> None:
        """Advance the base to the bonds as of the previously requested block."""
        until, self._asked = min(self._asked, block), block
        for at, change in changes:
            if at.block > until:
                return
            _apply(self._base, change)
            self._base_tip = at
            self._known.pop(at.history, None)

    def _forget(self) -> None:
        self._base, self._base_tip, self._asked = {}, Tip(_EMPTY, 0), 0

    def _read(self, tip: Tip) -> None:
        """Read a change, and others from the blocks before its own, from any endpoint that has it."""
        for blocks in LOG_CHUNKS:  # fewer, where an endpoint refuses that many logs
            answers = self._contract.changes(max(0, tip.block - blocks + 1), tip.block)
            shown = [(answer.endpoint, _changes_in(answer.value or ())) for answer in answers]
            proven = _proven(tip, {digest: change for _, found in shown for digest, change in found.items()})
            if proven:
                break
        else:
            unable = [answer.unable for answer in answers if answer.unable is not None]
            raise unable[0] if len(unable) == len(answers) else BondsHidden(tip.block)
        self._known.update(proven)  # the rest is unproven: an endpoint may show as many of those as it likes
        for (endpoint, found), answer in zip(shown, answers, strict=True):
            if answer.value is not None and tip.history not in found:
                endpoint.disagreed("it hides or changes a change of bonds")


class Gate:
    """The on-chain part of a swarm's gate; every method blocks."""

    def __init__(self, rpc: Rpc, manifest: Manifest, ledger: EpochLedgerContract) -> None:
        terms = manifest.gate
        self._rpc = rpc
        self._manifest = manifest
        self._ledger = ledger
        self._contract = AccountBond(rpc, terms.contract) if isinstance(terms, BondGate) else None
        self._history: BondHistory | AttestationHistory | None = None
        if self._contract is not None:
            self._history = BondHistory(self._contract)
        elif isinstance(terms, EasGate):
            self._history = AttestationHistory(rpc, terms)

    def require(self, token: Callable[[], Account]) -> None:
        """Raise unless the contract is what the manifest promises."""
        if self._contract is not None:
            require_gate(self._contract, self._manifest, token())
        if isinstance(self._manifest.gate, EasGate):
            require_service(self._rpc, self._manifest.gate)

    def bonds_at(self, block: int) -> Mapping[Account, int]:
        """Return the bonds, or the numbers of attestations, of all accounts as of a block."""
        if self._history is None:
            raise _no_gate(self._manifest)
        return self._history.at(block)

    def attestations(self, account: Account) -> int:
        """Return the number of an account's attestations that count now.

        Raises:
            LedgerError: the swarm's gate requires none, or they cannot be read now.
        """
        if not isinstance(self._manifest.gate, EasGate):
            raise LedgerError("accounts of this swarm need no attestation", hint="see `sapo ledger status`")
        return attestations_of(self._rpc, self._manifest.gate, account)

    def bonds(self, *, gate: bool) -> Bonds:
        """Return the contract of the accounts' bonds (gate) or of the auditors' bonds.

        Raises:
            LedgerError: the accounts' bonds are requested, and the swarm's gate requires none.
        """
        if not gate:
            return self._ledger.vault()
        if self._contract is None:
            raise _no_gate(self._manifest)
        return self._contract

    def accusation(self, auditor: Account, account: Account, epoch: int, proof: ContentId) -> Call | None:
        """Return an auditor's accusation if the contract would take it and the bond is worth a point."""
        contract, terms = self._contract, self._manifest.gate
        if contract is None or not isinstance(terms, BondGate):
            return None
        stake = contract.stake(account)
        units = terms.units(stake.bonded + stake.exiting)
        if not points_cap(self._manifest.limits.points_per_epoch, units):
            return None
        if contract.accusation(account, epoch).slashed or contract.has_accused(auditor, account, epoch):
            return None
        if self._ledger.vault().bonded(auditor) < self._ledger.auditor_bond():
            return None
        return Call(contract.address, contract.accuse(account, epoch, Digest(proof)))


def require_gate(contract: AccountBond, manifest: Manifest, token: Account) -> None:
    """Raise unless the contract behind a manifest's gate is what the manifest promises.

    Args:
        token: that the swarm pays.

    Raises:
        LedgerError: it is not; the text names the term.
    """
    gate = manifest.gate
    if not isinstance(gate, BondGate) or contract.address != gate.contract:
        raise LedgerError("the manifest has no such gate", hint="use the manifest of this swarm")
    hint = "ask whoever gave you the manifest for the right one"
    if not contract.is_deployed():
        raise LedgerError(f"there is no AccountBond of this version at {gate.contract}", hint=hint)
    for name, found, wanted in (
        ("the ledger of the accounts' bonds", contract.ledger(), manifest.ledger),
        ("the token of the accounts' bonds", contract.token().address, token),
        ("the exit delay of the accounts' bonds", contract.exit_seconds(), gate.exit_seconds),
    ):
        if found != wanted:
            raise LedgerError(f"{name} is {found}, not {wanted}", hint=hint)


def _no_gate(manifest: Manifest) -> LedgerError:
    if isinstance(manifest.gate, EasGate):
        return LedgerError(
            "accounts of this swarm need an attestation, not a bond",
            hint="`sapo ledger status` shows who attests: ask one of them to attest this account",
        )
    return LedgerError(
        "accounts of this swarm need no bond",
        hint="nothing is to be done: every account counts in full",
    )


def _apply(bonds: dict[Account, int], change: _Change) -> None:
    bonds.pop(change.account, None)
    if change.bonded:
        bonds[change.account] = change.bonded


def _proven(tip: Tip, shown: Mapping[Digest, _Change]) -> dict[Digest, _Change]:
    """Return those of the shown changes that are linked by hashes from a proven one."""
    found: dict[Digest, _Change] = {}
    while tip.history in shown:
        change = shown[tip.history]
        found[tip.history] = change
        tip = change.before
    return found


def _changes_in(events: tuple[bytes, ...]) -> dict[Digest, _Change]:
    """Return events by their hash; they are not verified yet."""
    return {Digest(keccak(data)): _change(data) for data in events if len(data) == _WORDS * _WORD}


def _change(data: bytes) -> _Change:
    account, bonded, history, block = (data[at : at + _WORD] for at in range(0, len(data), _WORD))
    before = Tip(Digest(history), int.from_bytes(block, "big"))
    return _Change(Account(account[-Account.SIZE :]), int.from_bytes(bonded, "big"), before)


def _data(web3: Web3, wanted: FilterParams, last_block: int) -> tuple[bytes, ...]:
    if web3.eth.block_number < last_block:
        raise NotYet(f"it has no block {last_block} yet", hint="wait for it")
    return tuple(bytes(log["data"]) for log in web3.eth.get_logs(wanted))


def _block(number: int) -> Any:
    return number
