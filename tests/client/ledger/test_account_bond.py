"""The accounts' bonds as of a block: permitted changes, and dishonest endpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount
from support.ledger import (
    ACCOUNT_EXIT_SECONDS,
    ALICE,
    AUDITORS,
    BOB,
    BOND_UNIT,
    DEPLOYER,
    QUORUM,
    Contracts,
    address,
    refused_as,
)
from support.lying_endpoint import Liar, Logs
from support.rewound import RewoundSite, forking_ledger

from sapo_client.ledger.account_bond import AccountBond, Accusation, BondHistory, require_gate
from sapo_client.ledger.errors import BondsHidden, Disagreement, LedgerError
from sapo_client.ledger.records import Stake
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.gate import BondGate

A, B = address(ALICE), address(BOB)
PROOF = Digest(b"\x01" * 32)
EPOCH = 7
DECISION = Path(__file__).parents[3] / "docs/adr/gate-units.md"


class Site(RewoundSite[Liar]):
    """A gate on a chain that can be reorganised, and the addresses at which it is read."""

    def read_by(self, endpoints: int = 1) -> tuple[BondHistory, list[Liar]]:
        rpc, liars = self.rpc(endpoints)
        return BondHistory(AccountBond(rpc, self.contracts.gate.address)), liars

    def bond(self, account: Account, amount: int) -> int:
        self.contracts.bond_account(account, amount)
        return self.block

    def leave(self, signer: LocalAccount, amount: int) -> int:
        gate = self.contracts.gate
        self.contracts.chain.send(signer, gate.address, gate.request_exit(amount))
        return self.block

    def idle(self, blocks: int) -> None:
        """Let blocks pass in which no bond changes."""
        token = self.contracts.token
        for _ in range(blocks):
            self.contracts.chain.send(DEPLOYER, token.address, token.transfer(A, 1))

    def accuse(self, auditor: int, account: Account = A) -> None:
        gate = self.contracts.gate
        self.contracts.chain.send(AUDITORS[auditor], gate.address, gate.accuse(account, EPOCH, PROOF))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Contracts, int]]:
    folder = tmp_path_factory.mktemp("gate")
    with forking_ledger(folder, account_exit_seconds=ACCOUNT_EXIT_SECONDS) as contracts:
        yield contracts, contracts.chain.engine.head.block_number


@pytest.fixture
def site(deployed: tuple[Contracts, int]) -> Site:
    """The chain as after the deployment."""
    return Site(*deployed, Liar)


def test_bonds_as_of_each_block(site: Site) -> None:
    history, [endpoint] = site.read_by()
    assert (history.at(site.block), endpoint.sought) == ({}, [])
    first = site.bond(A, 5)
    second = site.bond(B, 7)
    third = site.bond(A, 1)
    fourth = site.leave(BOB, 7)
    expected = {first - 1: {}, first: {A: 5}, second: {A: 5, B: 7}, third: {A: 6, B: 7}, fourth: {A: 6}}
    for blocks in (list(expected), list(expected)[::-1], [fourth, first, third, second]):
        assert [history.at(block) for block in blocks] == [expected[block] for block in blocks]
    fresh, _ = site.read_by()
    assert fresh.at(third) == expected[third]


def test_the_number_of_requests_does_not_grow_with_the_number_of_accounts(site: Site) -> None:
    history, [endpoint] = site.read_by()
    accounts = [Account(number.to_bytes(Account.SIZE, "big")) for number in range(1, 40)]
    for account in accounts:
        site.bond(account, 3)
    assert history.at(site.block) == dict.fromkeys(accounts, 3)
    assert len(endpoint.sought) == 1
    assert history.at(site.block) == dict.fromkeys(accounts, 3)
    site.idle(3)
    assert len(history.at(site.block)) == len(accounts)
    assert len(endpoint.sought) == 1  # nothing changed
    site.bond(A, 1)
    assert (len(history.at(site.block)), len(endpoint.sought)) == (len(accounts) + 1, 2)


def test_a_bond_that_leaves_right_after_the_block_stays_locked(site: Site) -> None:
    """Bonded just before an epoch's block and taken out just behind it, it counts in one epoch of fifteen."""
    counted = site.bond(A, BOND_UNIT)
    site.leave(ALICE, BOND_UNIT)
    history, _ = site.read_by()
    assert (history.at(counted), history.at(site.block)) == ({A: BOND_UNIT}, {})
    gate, chain = site.contracts.gate, site.contracts.chain
    asked = site.engine.head.timestamp
    chain.now_seconds = asked + ACCOUNT_EXIT_SECONDS - 1
    assert refused_as(lambda: chain.send(ALICE, gate.address, gate.withdraw())) == "ExitTooEarly"
    chain.now_seconds = asked + ACCOUNT_EXIT_SECONDS
    chain.send(ALICE, gate.address, gate.withdraw())
    assert gate.stake(A) == Stake(0, 0, asked + ACCOUNT_EXIT_SECONDS)


def test_one_bond_never_counts_for_two_accounts_in_one_block(site: Site) -> None:
    """The tokens that leave one account are not there to be bonded for another before their delay is over."""
    gate, token, chain = site.contracts.gate, site.contracts.token, site.contracts.chain
    blocks = [site.bond(A, BOND_UNIT), site.leave(ALICE, BOND_UNIT)]
    chain.send(ALICE, token.address, token.approve(gate.address, BOND_UNIT))
    assert refused_as(lambda: chain.send(ALICE, gate.address, gate.deposit(B, BOND_UNIT))) is not None
    chain.now_seconds = site.engine.head.timestamp + ACCOUNT_EXIT_SECONDS
    chain.send(ALICE, gate.address, gate.withdraw())
    chain.send(ALICE, gate.address, gate.deposit(B, BOND_UNIT))
    history, _ = site.read_by()
    assert [history.at(block) for block in (*blocks, site.block)] == [{A: BOND_UNIT}, {}, {B: BOND_UNIT}]


def test_a_quorum_of_auditors_burns_the_bond_of_an_equivocator(site: Site) -> None:
    gate = site.contracts.gate
    site.bond(A, 10)
    site.leave(ALICE, 4)
    for auditor in range(QUORUM - 1):
        site.accuse(auditor)
    assert (gate.stake(A).bonded, gate.stake(A).exiting) == (6, 4)
    assert refused_as(lambda: site.accuse(0)) == "AlreadyAccused"
    site.accuse(QUORUM - 1)
    assert (gate.stake(A), gate.accusation(A, EPOCH)) == (Stake(0, 0, 0), Accusation(QUORUM, slashed=True))
    history, _ = site.read_by()
    assert history.at(site.block) == {}
    data = gate.accuse(A, EPOCH + 1, PROOF)
    assert refused_as(lambda: site.contracts.chain.send(BOB, gate.address, data)) == "NotAuditor"


def _hide(logs: Logs) -> Logs:
    return []


def _enlarge(logs: Logs) -> Logs:
    """Let every bond be a thousand times as large."""
    return [{**log, "data": log["data"][:66] + f"{1000:064x}" + log["data"][130:]} for log in logs]


def _forge(logs: Logs) -> Logs:
    """Add a change behind the newest one, for an account that has no bond."""
    forged = B.rjust(32, b"\0").hex() + f"{1000:064x}" + logs[-1]["data"][130:] if logs else ""
    return [*logs, {**logs[-1], "data": "0x" + forged}] if logs else logs


def _cut(logs: Logs) -> Logs:
    """Leave out the last word of every change."""
    return [{**log, "data": log["data"][:-64]} for log in logs]


@pytest.mark.parametrize("tamper", [_hide, _enlarge, _cut])
def test_an_answer_of_a_single_endpoint_that_hides_bonds_is_refused(
    site: Site, tamper: Callable[[Logs], Logs]
) -> None:
    block = site.bond(A, 5)
    history, [endpoint] = site.read_by()
    endpoint.tamper = tamper
    with pytest.raises(BondsHidden):
        history.at(block)
    endpoint.tamper = lambda logs: logs
    assert history.at(block) == {A: 5}


@pytest.mark.parametrize("tamper", [_hide, _enlarge, _forge, _cut])
def test_one_honest_endpoint_suffices_for_the_logs(site: Site, tamper: Callable[[Logs], Logs]) -> None:
    site.bond(A, 5)
    block = site.bond(A, 6)
    history, [liar, _, _] = site.read_by(3)
    liar.tamper = tamper
    assert history.at(block) == {A: 11}


def test_the_state_needs_a_majority(site: Site) -> None:
    block = site.bond(A, 5)
    history, liars = site.read_by(3)
    liars[0].tip = "0x" + bytes(31).hex() + "01" + bytes(32).hex()  # no bond was ever made
    assert history.at(block) == {A: 5}
    history, liars = site.read_by(2)
    liars[0].tip = "0x" + bytes(31).hex() + "01" + bytes(32).hex()
    with pytest.raises(Disagreement):
        history.at(block)


def test_bonds_removed_by_a_reorganisation_do_not_count(site: Site) -> None:
    history, _ = site.read_by()
    first = site.bond(A, 5)
    assert history.at(first) == {A: 5}
    site.bond(B, 5)
    assert history.at(site.block) == {A: 5, B: 5}
    site.engine.rewind(first - 2)
    site.contracts.chain.now_seconds += 5
    block = site.bond(B, 2)
    assert history.at(block) == {B: 2}


def test_many_changes_are_read_in_parts_where_an_endpoint_refuses_all_at_once(site: Site) -> None:
    blocks = [site.bond(A, 1) for _ in range(30)]
    history, [endpoint] = site.read_by()
    endpoint.tamper = lambda logs: logs if len(logs) <= 10 else []  # as good as a refusal
    assert [history.at(block)[A] for block in blocks] == [*range(1, 31)]
    assert min(last - first + 1 for first, last in endpoint.sought) == 10


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"exit_seconds": ACCOUNT_EXIT_SECONDS + 1}, "exit delay"),
        ({"contract": A}, "no AccountBond"),
    ],
)
def test_a_gate_that_differs_from_the_manifest(site: Site, changes: dict[str, object], named: str) -> None:
    right = {"contract": site.contracts.gate.address, "unit": 1, "exit_seconds": ACCOUNT_EXIT_SECONDS}
    fields = {**right, **changes}
    manifest = site.contracts.manifest(gate=BondGate(**fields))  # type: ignore[arg-type]
    gate = AccountBond(site.contracts.chain.rpc, fields["contract"])  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match=named):
        require_gate(gate, manifest, site.contracts.token.address)


def test_a_gate_that_matches_the_manifest(site: Site) -> None:
    require_gate(site.contracts.gate, site.contracts.manifest(), site.contracts.token.address)
    with pytest.raises(LedgerError, match="token of the accounts' bonds"):
        require_gate(site.contracts.gate, site.contracts.manifest(), A)


def test_gas_of_each_transaction(site: Site) -> None:
    """The figures of docs/adr/gate-units.md, each of an account's first transaction of a kind."""
    site.bond(B, 1)
    gate, chain = site.contracts.gate, site.contracts.chain
    spent = {
        "deposit": site.contracts.bond_account(A, 10).gas_used,
        "requestExit": chain.send(ALICE, gate.address, gate.request_exit(4)).gas_used,
    }
    for auditor in range(QUORUM):
        data = gate.accuse(A, EPOCH, PROOF)
        spent[f"accuse {auditor}"] = chain.send(AUDITORS[auditor], gate.address, data).gas_used
    text = DECISION.read_text(encoding="utf-8")
    assert {name: f"{gas:,}" for name, gas in spent.items() if f"| {gas:,} |" not in text} == {}
