"""The sender: from a request to a settled transaction, through refusals, races and outages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount
from support.ledger import (
    ALICE,
    AUDITORS,
    BOB,
    GENESIS_SECONDS,
    NOW_SECONDS,
    STRANGER,
    Contracts,
    address,
    make_root,
    node_key,
    send_coins,
    sign,
)

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.ledger.fraud import Equivocation
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.identifiers import Account

LATER = NOW_SECONDS + 10**9


@dataclass
class Clock:
    """A monotonic clock that only the test moves."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


class Desk:
    """A sender with its outbox and clock, against a deployed ledger."""

    def __init__(
        self,
        contracts: Contracts,
        path: Path,
        *,
        signer: LocalAccount = ALICE,
        rpc: Rpc | None = None,
        confirmations: int = 1,
    ) -> None:
        self.contracts, self.clock = contracts, Clock()
        self.outbox = Outbox(path / "outbox.sqlite", owner="test")
        self.sender = Sender(
            rpc or contracts.chain.rpc, signer, self.outbox, confirmations=confirmations, clock=self.clock
        )

    def want(self, data: bytes, key: str = "1", to: Account | None = None, kind: str = "test") -> None:
        self.outbox.add(kind, key, Call(to or self.contracts.registry.address, data))

    def register(self, number: int) -> bytes:
        return self.contracts.registry.register(node_key(number), LATER)

    def steps(self) -> int:
        """Steps until nothing is left to do."""
        count = 1
        while self.sender.step():
            count += 1
            assert count < 20
        return count

    def notes(self) -> list[tuple[EntryState, str | None]]:
        return [(entry.state, entry.note) for entry in self.outbox.entries()]


@pytest.fixture
def desk(contracts: Contracts, tmp_path: Path) -> Desk:
    return Desk(contracts, tmp_path)


def test_requests_are_sent_in_order_and_confirmed(desk: Desk) -> None:
    for number in (1, 2, 3):
        desk.want(desk.register(number), key=str(number))
    assert desk.sender.step()
    assert [entry.state for entry in desk.outbox.entries()] == [EntryState.SIGNED] * 3
    assert not desk.sender.step()
    assert desk.notes() == [(EntryState.CONFIRMED, None)] * 3
    assert desk.contracts.registry.live_nodes(address(ALICE)) == tuple(map(node_key, (1, 2, 3)))


def test_a_transaction_counts_after_enough_blocks(contracts: Contracts, tmp_path: Path) -> None:
    desk = Desk(contracts, tmp_path, confirmations=3)
    desk.want(desk.register(1))
    assert desk.sender.step()
    for _ in range(2):
        assert desk.sender.step()
        send_coins(contracts.chain.url, BOB, address(BOB), 1)
    assert not desk.sender.step()


def test_at_most_eight_transactions_are_under_way(contracts: Contracts, tmp_path: Path) -> None:
    """Endpoints drop what goes far beyond the nonce that the chain has seen."""
    desk = Desk(contracts, tmp_path, confirmations=20)
    for number in range(10):
        data = contracts.token.approve(address(BOB), number)
        desk.want(data, key=str(number), to=contracts.token.address, kind=f"kind {number}")
    for _ in range(2):
        assert desk.sender.step()
        assert desk.outbox.counts() == {
            EntryState.QUEUED: 2, EntryState.SIGNED: 8, EntryState.CONFIRMED: 0, EntryState.REFUSED: 0,
        }  # fmt: skip


def test_a_posting_made_by_another_auditor_counts_as_done(contracts: Contracts, tmp_path: Path) -> None:
    desk = Desk(contracts, tmp_path)
    root = make_root(3)
    data = contracts.ledger.post(EpochApproval(0, root), sign(root, contracts.domain))
    contracts.post(root, sign(root, contracts.domain, AUDITORS))
    contracts.finalise()
    desk.want(data, to=contracts.ledger.address)
    assert desk.steps() == 1
    assert desk.notes() == [(EntryState.CONFIRMED, "EpochNotIncreasing")]


def test_a_transaction_reverted_after_another_posting_counts_as_done(
    contracts: Contracts, tmp_path: Path
) -> None:
    desk = Desk(contracts, tmp_path)
    root = make_root(3)
    desk.want(
        contracts.ledger.post(EpochApproval(0, root), sign(root, contracts.domain)),
        to=contracts.ledger.address,
    )
    (entry,) = desk.outbox.entries()
    signed = tx.sign(
        contracts.chain.rpc, ALICE, entry.call, tx.next_nonce(contracts.chain.rpc, address(ALICE))
    )
    desk.outbox.sign(entry, signed)  # signed while it would be accepted, then another posting is mined first
    contracts.post(root, sign(root, contracts.domain), signer=BOB)
    contracts.finalise()
    assert desk.sender.step()  # sends it: the chain mines it as reverted
    assert desk.sender.step()
    assert desk.notes() == [(EntryState.QUEUED, "reverted")]
    desk.clock.seconds += 1
    assert not desk.sender.step()
    assert desk.notes() == [(EntryState.CONFIRMED, "EpochNotIncreasing")]


def test_requests_that_the_contract_refuses_permanently_are_dropped(desk: Desk) -> None:
    desk.want(desk.register(0))
    assert desk.steps() == 1
    assert desk.notes() == [(EntryState.REFUSED, "EmptyNodeKey")]
    assert "EmptyNodeKey" in str(desk.sender.last_error)


def test_requests_that_are_too_early_are_retried(contracts: Contracts, tmp_path: Path) -> None:
    desk, chain = Desk(contracts, tmp_path), contracts.chain
    epoch = (chain.engine.head.timestamp - GENESIS_SECONDS) // 60
    root = make_root(epoch)
    desk.want(
        contracts.ledger.post(EpochApproval(0, root), sign(root, contracts.domain)),
        to=contracts.ledger.address,
    )
    desk.want(desk.register(1), kind="other")
    assert desk.sender.step()
    assert "EpochNotOver" in str(desk.sender.last_error)
    assert desk.sender.step()  # still waiting: not even asked again, while the other one is done
    assert [entry.state for entry in desk.outbox.entries()] == [EntryState.QUEUED, EntryState.CONFIRMED]
    chain.now_seconds = GENESIS_SECONDS + (epoch + 1) * 60
    desk.clock.seconds += 1
    assert desk.steps() == 2
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root


def test_a_posting_waits_for_the_one_before_it(contracts: Contracts, tmp_path: Path) -> None:
    desk, other = Desk(contracts, tmp_path), make_root(2)
    root = make_root(3, base_root=other.cumulative_root)
    contracts.post(other, sign(other, contracts.domain))
    desk.want(
        contracts.ledger.post(EpochApproval(0, root), sign(root, contracts.domain)),
        to=contracts.ledger.address,
    )
    assert desk.sender.step()
    assert "OtherPostingLive" in str(desk.sender.last_error)
    contracts.finalise()
    desk.clock.seconds += 1
    assert desk.steps() == 2
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == root


def test_a_posting_whose_signer_was_slashed_does_not_delay_the_next(
    contracts: Contracts, tmp_path: Path
) -> None:
    desk, liar = Desk(contracts, tmp_path), AUDITORS[0]
    spoilt, good = make_root(2), make_root(3)
    lies = (make_root(1), make_root(1, total=11))
    signatures = [sign(lie, contracts.domain, [liar])[0] for lie in lies]
    contracts.prove(Equivocation(0, *lies, *signatures))
    for root, signers in ((spoilt, AUDITORS[:3]), (good, AUDITORS[1:])):
        posting = contracts.ledger.post(EpochApproval(0, root), sign(root, contracts.domain, signers))
        desk.want(posting, key=str(root.epoch), to=contracts.ledger.address)
    assert desk.steps() == 2
    assert desk.notes() == [(EntryState.REFUSED, "TooFewSignatures"), (EntryState.CONFIRMED, None)]
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == good


def test_a_signed_transaction_is_sent_again_after_a_restart(contracts: Contracts, tmp_path: Path) -> None:
    desk = Desk(contracts, tmp_path)
    desk.want(desk.register(1))
    (entry,) = desk.outbox.entries()
    rpc = contracts.chain.rpc
    nonce = tx.next_nonce(rpc, address(ALICE))
    signed = tx.sign(rpc, ALICE, entry.call, nonce, block=tx.head_block(rpc))
    desk.outbox.sign(entry, signed)
    desk.outbox.close()
    desk = Desk(contracts, tmp_path)
    assert desk.steps() == 2
    assert tx.receipt(contracts.chain.rpc, signed.digest) is not None
    assert tx.next_nonce(contracts.chain.rpc, address(ALICE)) == nonce + 1


def test_a_request_whose_nonce_was_used_elsewhere_is_queued_again(desk: Desk) -> None:
    chain = desk.contracts.chain
    desk.want(desk.register(1))
    (entry,) = desk.outbox.entries()
    nonce = tx.next_nonce(chain.rpc, address(ALICE))
    desk.outbox.sign(entry, tx.sign(chain.rpc, ALICE, entry.call, nonce))
    send_coins(chain.url, ALICE, address(BOB), 1)  # the owner used a wallet meanwhile
    assert desk.sender.step()
    assert desk.notes() == [(EntryState.QUEUED, "its nonce went to another transaction")]
    desk.clock.seconds += 1
    desk.steps()
    assert desk.contracts.registry.live_nodes(address(ALICE)) == (node_key(1),)


def test_an_account_without_coins_waits_for_them(contracts: Contracts, tmp_path: Path) -> None:
    desk = Desk(contracts, tmp_path, signer=STRANGER)
    contracts.chain.now_seconds += 1
    if _coins(contracts, STRANGER.address):
        pytest.fail("the stranger has coins from elsewhere")
    desk.want(desk.register(1))
    assert desk.sender.step()
    assert desk.sender.last_error is not None
    assert "the chain refuses the transaction: the sender has not enough balance" in desk.sender.last_error
    send_coins(contracts.chain.url, BOB, address(STRANGER), 10**18)
    desk.clock.seconds += 10
    desk.steps()
    assert contracts.registry.live_nodes(address(STRANGER)) == (node_key(1),)


def test_without_an_endpoint_requests_stay_queued(contracts: Contracts, tmp_path: Path) -> None:
    desk = Desk(contracts, tmp_path, rpc=Rpc(["http://127.0.0.1:9"]))
    desk.want(desk.register(1))
    with pytest.raises(LedgerUnavailable):
        desk.sender.step()
    assert desk.notes() == [(EntryState.QUEUED, None)]


def test_another_endpoint_takes_over(contracts: Contracts, tmp_path: Path) -> None:
    rpc = Rpc(["http://127.0.0.1:9", contracts.chain.url])
    desk = Desk(contracts, tmp_path, rpc=rpc)
    desk.want(desk.register(1))
    assert desk.steps() == 2


def _coins(contracts: Contracts, account: str) -> int:
    return int(contracts.chain.request("eth_getBalance", account, "latest")["result"], 16)


def test_signatures_that_others_have_added_do_not_delay_later_ones(
    contracts: Contracts, tmp_path: Path
) -> None:
    """The live posting lost its quorum twice; the first time another auditor was faster."""
    desk, ledger = Desk(contracts, tmp_path), contracts.ledger
    root, others = make_root(3), (make_root(3, archive=8), make_root(3, archive=9))

    def strike(turn: int) -> None:
        signatures = [sign(each, contracts.domain, AUDITORS[:1], turn)[0] for each in others]
        contracts.prove(Equivocation(turn, *others, *signatures))
        contracts.bond(AUDITORS[0])

    def posting(signers: Sequence[LocalAccount], turn: int) -> bytes:
        return ledger.post(EpochApproval(turn, root), sign(root, contracts.domain, signers, turn))

    contracts.post(root, sign(root, contracts.domain, AUDITORS[:3]))
    strike(1)
    contracts.chain.send(BOB, ledger.address, posting(AUDITORS[:3], 0))
    desk.want(posting(AUDITORS[:3], 0), key="first", to=ledger.address, kind="signatures")
    desk.sender.step()
    strike(2)
    desk.want(posting(AUDITORS[1:], 1), key="second", to=ledger.address, kind="signatures")
    assert desk.steps() == 2
    live = ledger.live()
    assert live is not None
    assert live.signers == 0b1110
    assert desk.notes() == [(EntryState.REFUSED, "OtherPostingLive"), (EntryState.CONFIRMED, None)]
