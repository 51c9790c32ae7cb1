"""One of several endpoints lies about gas, fees, heads and nonces: behaviour of the sender."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ledger import ALICE, Contracts, address, found, node_key

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.errors import Disagreement, LedgerError
from sapo_client.ledger.fees import Fees, bump
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.transactions import Call, Signed
from sapo_protocol.identifiers import Account, Digest


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    made = found(tmp_path / "chain.sqlite")
    yield made
    made.chain.close()


def test_no_single_estimate_decides_the_gas() -> None:
    gas: Callable[[list[int]], int] = tx._gas
    assert gas([100_000]) == 120_000
    assert gas([100_000, 101_000]) == 121_200
    assert gas([100_000, 101_000, 2**40]) == 242_400, "more than a block holds would never be mined"
    assert gas([21_000, 100_000, 101_000]) == 121_200
    with pytest.raises(Disagreement):
        gas([100_000, 2**40])


def test_a_replacement_of_zero_fees_has_positive_fees() -> None:
    assert bump(Fees(0, 0), Fees(0, 0), 100) == Fees(1, 1)


def test_a_replacement_estimates_the_gas_again(contracts: Contracts) -> None:
    call = Call(contracts.registry.address, contracts.registry.register(node_key(1), 10**10))
    stuck = Signed(0, Digest(bytes(32)), b"", 2**40, Fees(1, 10**9), 0)
    better = tx.replacement(contracts.chain.rpc, ALICE, call, stuck, limit_wei=10**11, block=1)
    assert better is not None
    assert better.gas < 500_000
    refused = Call(contracts.registry.address, contracts.registry.register(node_key(1), 0))
    again = tx.replacement(contracts.chain.rpc, ALICE, refused, stuck, limit_wei=10**11, block=1)
    assert again is not None
    assert again.gas == 30_000_000


def _signed(nonce: int, number: int) -> Signed:
    return Signed(nonce, Digest(bytes([number]) * 32), bytes([number]), 21_000, Fees(1, 2), 0)


def test_two_processes_never_sign_the_same_request(tmp_path: Path) -> None:
    """The second read the request while it was queued, and gives it another nonce."""
    path = tmp_path / "outbox.sqlite"
    first, second = (Outbox(path, owner="x") for _ in range(2))
    first.add("exit", "0", Call(Account(bytes(20)), b""))
    (seen_by_first,), (seen_by_second,) = first.entries(), second.entries()
    first.sign(seen_by_first, _signed(0, 1))
    for signed in (_signed(1, 2), _signed(0, 3)):
        with pytest.raises(LedgerError, match="another process"):
            second.sign(seen_by_second, signed)
    (entry,) = second.entries()
    assert (entry.state, entry.transactions) == (EntryState.SIGNED, (_signed(0, 1),))
    second.sign(entry, _signed(0, 4))
    assert first.entries()[0].transactions == (_signed(0, 1), _signed(0, 4))


def test_a_gap_in_the_nonces_is_filled(tmp_path: Path) -> None:
    """An endpoint had said that the account's next nonce is 2."""
    outbox = Outbox(tmp_path / "outbox.sqlite", owner="x")
    for number, nonce in enumerate((2, 0)):
        outbox.add("claim", str(number), Call(Account(bytes(20)), b""))
        outbox.sign(outbox.entries(EntryState.QUEUED)[0], _signed(nonce, number + 1))
    assert [outbox.next_nonce(chain) for chain in (0, 1, 2, 3)] == [1, 1, 3, 3]


def test_a_repeated_request_after_a_different_one_has_a_new_key(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.sqlite", owner="x")
    keys = []
    for request in ("B:A:0", "B:A:0", "A:B:0", "B:A:0", "B:A:0"):
        keys.append(outbox.key_after("payout", request))
        outbox.add("payout", keys[-1], Call(Account(bytes(20)), b""))
    assert keys == ["B:A:0", "B:A:0", "A:B:0:1", "B:A:0:1", "B:A:0:1"]


def test_the_address_of_a_contract_needs_no_endpoint(contracts: Contracts) -> None:
    """It follows from sender and nonce; a receipt's word for it would be one endpoint's alone."""
    sender = Account.from_hex("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
    assert tx.created_by(sender, 0) == Account.from_hex("0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d")
    assert tx.created_by(sender, 1) == Account.from_hex("0x343c43a37d37dff08ae8c4a11544c718abb4fcf8")
    nonce = tx.next_nonce(contracts.chain.rpc, address(ALICE))
    assert tx.created_by(address(ALICE), nonce) != tx.created_by(address(ALICE), nonce + 1)
