"""``sapo ledger claim`` and ``payout`` over an endpoint with faults: sent once, and reported truly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from eth_utils import keccak
from support.auditor_harness import AUDITORS, WORKERS, World, agree, refuse
from support.epoch_harness import EPOCH, EpochHarness
from support.ledger import GENESIS_SECONDS
from support.network import ForkingChain

from sapo_client import keystore
from sapo_client.account import ledger_commands, ledger_session
from sapo_client.account.payouts import payout
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import SapoError
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.chain.errors import REFUSED, ChainClosed, RpcError
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_client.node.runtime.statements import SignedFields
from sapo_protocol.contributions import Proposal, Share
from sapo_protocol.identifiers import ContentId

ALICE, BOB = WORKERS
PROPOSAL = Proposal(
    node=AUDITORS[0].node,
    account=AUDITORS[0].account,
    epoch=EPOCH,
    tallies=(ContentId(bytes(32)),),
    shares=tuple(
        sorted((Share(ALICE.account, 5, 5), Share(BOB.account, 3, 3)), key=lambda share: share.account)
    ),
)
_CLAIMED = "0x" + keccak(text="claimed(address)")[:4].hex()
_PLACE_OF_BLOCK = {"eth_getTransactionCount": 1, "eth_call": 1, "eth_estimateGas": 1, "eth_getBalance": 1}


class Faulty:
    """The methods of a chain behind an endpoint with a fault; this one has none.

    Attributes:
        sent: number of transactions that were passed on.
    """

    def __init__(self, methods: Methods, chain: ForkingChain) -> None:
        self.chain, self.sent = chain, 0
        self._methods = methods

    def call(self, method: str, params: list[Any]) -> object:
        """Answer a request."""
        if method == "eth_sendRawTransaction":
            self.sent += 1
        return self.answer(method, params)

    def answer(self, method: str, params: list[Any]) -> object:
        """Answer as the chain does."""
        return self._methods.call(method, params)


class Unheard(Faulty):
    """The transaction is carried out, and no answer comes, nor to the next requests."""

    silent = 0

    def answer(self, method: str, params: list[Any]) -> object:
        if self.silent:
            self.silent -= 1
            raise ChainClosed
        answer = super().answer(method, params)
        if method == "eth_sendRawTransaction" and self.sent == 1:
            self.silent = 12
            raise ChainClosed
        return answer


class AlreadyKnown(Faulty):
    """The transaction is carried out, and refused as one that is known."""

    def answer(self, method: str, params: list[Any]) -> object:
        answer = super().answer(method, params)
        if method == "eth_sendRawTransaction":
            raise RpcError(REFUSED, "already known")
        return answer


class StaleNonce(Faulty):
    """For a while after the transaction the account's nonce is the one before it."""

    left = 12

    def answer(self, method: str, params: list[Any]) -> object:
        answer = super().answer(method, params)
        if method == "eth_getTransactionCount" and self.sent and self.left and isinstance(answer, str):
            self.left -= 1
            return hex(int(answer, 16) - 1)
        return answer


class Silent(Faulty):
    """After so many transactions, or after the consent, nothing is answered."""

    is_silent = False

    def __init__(self, methods: Methods, chain: ForkingChain, max_sent: int) -> None:
        super().__init__(methods, chain)
        self._max_sent = max_sent

    def answer(self, method: str, params: list[Any]) -> object:
        if self.is_silent or self.sent > self._max_sent:
            raise ChainClosed
        return super().answer(method, params)


class FalseReceipt(Faulty):
    """For a while the receipt says that the transaction reverted."""

    left = 3

    def answer(self, method: str, params: list[Any]) -> object:
        answer = super().answer(method, params)
        if method == "eth_getTransactionReceipt" and isinstance(answer, dict) and self.left:
            self.left -= 1
            return {**answer, "status": "0x0"}
        return answer


class NoReceipt(Faulty):
    """For a while there is no receipt."""

    left = 5

    def answer(self, method: str, params: list[Any]) -> object:
        if method == "eth_getTransactionReceipt" and self.left:
            self.left -= 1
            return None
        return super().answer(method, params)


class Stale(Faulty):
    """The endpoint answers as at an earlier block."""

    def __init__(self, methods: Methods, chain: ForkingChain, height: int) -> None:
        super().__init__(methods, chain)
        self._height = height

    def answer(self, method: str, params: list[Any]) -> object:
        if method == "eth_blockNumber":
            return hex(self._height)
        if method == "eth_getBlockByNumber" and params[0] == "latest":
            return super().answer(method, [hex(self._height), *params[1:]])
        place = _PLACE_OF_BLOCK.get(method)
        if place is not None and params[place:] in ([], ["latest"]):
            return super().answer(method, [*params[:place], hex(self._height)])
        return super().answer(method, params)


class Reorganised(Faulty):
    """The block with the claim is taken back as soon as its effect was read, and its transaction with it.

    Attributes:
        is_over: whether that has happened.
    """

    is_over = False

    def answer(self, method: str, params: list[Any]) -> object:
        answer = super().answer(method, params)
        if self.is_over or method != "eth_call" or not isinstance(answer, str):
            return answer
        if str(params[0].get("data")).startswith(_CLAIMED) and int(answer, 16):
            self.is_over = True
            self.chain.rewind(self.chain.head.block_number - 1)
            self.chain.mine_empty(b"another branch")
        return answer


class Liar(Faulty):
    """It says that the points are paid, that the nonce is far ahead, and that every receipt failed."""

    def answer(self, method: str, params: list[Any]) -> object:
        answer = super().answer(method, params)
        if method == "eth_call" and str(params[0].get("data")).startswith(_CLAIMED):
            return "0x" + (5).to_bytes(32, "big").hex()
        if method == "eth_getTransactionCount":
            return hex(1000)
        if method == "eth_getTransactionReceipt":
            return {**answer, "status": "0x0"} if isinstance(answer, dict) else None
        return answer


class Desk:
    """Alice's data directory and the chain."""

    def __init__(self, folder: Path, world: World) -> None:
        self.world, self.node = world, EpochHarness(folder, world)
        self.node.post_unheard(PROPOSAL)
        self.node.hear(AUDITORS[0], PROPOSAL)
        world.contracts.finalise()
        assert isinstance(world.chain.engine, ForkingChain)
        self.engine = world.chain.engine
        key = folder / "alice.json"
        keystore.create(key, None, node_seed=ALICE.seed, account_key=ALICE.secret)
        self.config: Config = self.node.config.model_copy(update={"identity": str(key)})
        self.before = self._holdings()

    def serve(self, faulty: Faulty) -> None:
        """Put a fault before the chain."""
        self.world.chain._server.methods = faulty  # type: ignore[assignment]

    @contextmanager
    def beside(self, faulty: Sequence[Faulty]) -> Iterator[Config]:
        """Serve further endpoints; yield a configuration that names these before the first one."""
        servers = [ChainServer(each, 0) for each in faulty]  # type: ignore[arg-type]
        for server in servers:
            Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        urls = (*(server.url for server in servers), self.world.chain.url)
        yield self.config.model_copy(update={"ledger": LedgerConfig(rpc_urls=urls)})
        for server in servers:
            server.shutdown()
            server.server_close()

    @property
    def methods(self) -> Methods:
        """The chain's own methods."""
        return self.world.chain._methods

    def paid(self) -> tuple[int, int]:
        """Return Alice's new tokens, and the number of transactions that she has paid for."""
        tokens, nonce = self._holdings()
        return (tokens - self.before[0]) // 10**18, nonce - self.before[1]

    def _holdings(self) -> tuple[int, int]:
        contracts = self.world.contracts
        rpc = contracts.chain.rpc
        return contracts.token.balance(ALICE.account), tx.next_nonce(rpc, ALICE.account)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with World.running(tmp_path, kind=ForkingChain) as world:
        yield Desk(tmp_path, world)


@pytest.mark.parametrize("kind", [Faulty, Unheard, AlreadyKnown, StaleNonce, FalseReceipt, NoReceipt])
def test_a_claim_is_paid_once_whatever_the_endpoint_says(desk: Desk, kind: type[Faulty]) -> None:
    faulty = kind(desk.methods, desk.engine)
    desk.serve(faulty)
    told = ledger_commands.claim(desk.config, agree)
    desk.serve(Faulty(desk.methods, desk.engine))
    assert (told["points claimed"], told["points claimed in all"]) == (5, 5)
    assert desk.paid() == (5, 1)
    with pytest.raises(SapoError, match="nothing to claim: 5 points granted, 5 claimed"):
        ledger_commands.claim(desk.config, agree)
    assert desk.paid() == (5, 1)


def test_one_lying_endpoint_of_three_changes_nothing(desk: Desk) -> None:
    others = [Liar(desk.methods, desk.engine), Faulty(desk.methods, desk.engine)]
    with desk.beside(others) as config:
        told = ledger_commands.claim(config, agree)
        assert (told["points claimed"], told["points claimed in all"]) == (5, 5)
        with pytest.raises(SapoError, match="nothing to claim: 5 points granted, 5 claimed"):
            ledger_commands.claim(config, agree)
    assert desk.paid() == (5, 1)


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_claim_over_an_endpoint_that_falls_silent_is_queued_or_fails(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_queued: bool
) -> None:
    """What the command says is so: the next one finds the claim in the outbox, or queues it."""
    monkeypatch.setattr(ledger_session, "PATIENCE_SECONDS", 6.0)
    silent = Silent(desk.methods, desk.engine, max_sent=0)

    def consent(fields: Sequence[SignedFields]) -> None:
        silent.is_silent = not is_queued

    desk.serve(silent)
    with pytest.raises(SapoError, match="the claim is queued" if is_queued else "no answer from the chain"):
        ledger_commands.claim(desk.config, consent)
    with ledger_session.open_session(desk.config) as session:
        assert session.ledger.status().pending == is_queued
    desk.serve(Faulty(desk.methods, desk.engine))
    told = ledger_commands.claim(desk.config, agree)
    assert told["points claimed in all"] == 5
    assert desk.paid() == (5, 1)


def test_an_endpoint_that_is_behind_does_not_report_an_earlier_claim_as_new(desk: Desk) -> None:
    height = desk.engine.head.block_number
    desk.world.chain.now_seconds += 12
    ledger_commands.claim(desk.config, agree)
    desk.serve(Stale(desk.methods, desk.engine, height))
    with pytest.raises(SapoError, match="the RPC endpoints are behind"):
        ledger_commands.claim(desk.config, agree)
    desk.serve(Faulty(desk.methods, desk.engine))
    assert desk.paid() == (5, 1)


def test_an_endpoint_that_is_behind_does_not_make_a_later_payout_address_the_first_one(desk: Desk) -> None:
    """Behind the first address, the second one would be shown as one that takes effect at once."""
    height = desk.engine.head.block_number
    desk.world.chain.now_seconds += 12
    payout(desk.config, str(BOB.account), agree)
    desk.serve(Stale(desk.methods, desk.engine, height))
    with pytest.raises(SapoError, match="the RPC endpoints are behind"):
        payout(desk.config, str(AUDITORS[0].account), refuse)
    desk.serve(Faulty(desk.methods, desk.engine))
    assert desk.world.contracts.distributor.payout(ALICE.account) == BOB.account
    assert desk.paid() == (0, 1)


def test_the_last_block_is_read_whenever_endpoints_must_not_be_behind(desk: Desk) -> None:
    """Neither a session that has read no block yet nor one that has read an earlier one relies on that."""
    height = desk.engine.head.block_number
    desk.world.chain.now_seconds += 12
    payout(desk.config, str(BOB.account), agree)
    with ledger_session.open_session(desk.config) as session:
        ledger_session.run(session.require_current)
        desk.serve(Stale(desk.methods, desk.engine, height))
        with pytest.raises(SapoError, match="the RPC endpoints are behind"):
            ledger_session.run(session.require_current)
        desk.serve(Faulty(desk.methods, desk.engine))
        ledger_session.run(session.require_current)


def test_no_payout_address_is_signed_for_contracts_with_other_terms(desk: Desk, tmp_path: Path) -> None:
    """The endpoint serves a chain of the same number, with other contracts at the same addresses."""
    folder = tmp_path / "other"
    folder.mkdir()
    with World.running(folder, genesis_seconds=GENESIS_SECONDS - 1) as other:
        assert other.contracts.deployment == desk.world.contracts.deployment
        desk.world.chain.swap(other.chain)
        with pytest.raises(SapoError, match="counts its epochs by another clock than the manifest"):
            payout(desk.config, str(BOB.account), refuse)
        desk.world.chain.swap(other.chain)


def test_a_claim_that_a_reorganisation_takes_back_is_sent_again(desk: Desk) -> None:
    faulty = Reorganised(desk.methods, desk.engine)
    desk.serve(faulty)
    told = ledger_commands.claim(desk.config, agree)
    desk.serve(Faulty(desk.methods, desk.engine))
    assert faulty.is_over
    assert (told["points claimed"], told["points claimed in all"]) == (5, 5)
    assert desk.paid() == (5, 1)
