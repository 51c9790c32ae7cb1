"""The ledger as a node uses it, under trio, against the embedded chain."""

import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from support.ledger import (
    ALICE,
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    DEPLOYER,
    EPOCH_SECONDS,
    GENESIS_SECONDS,
    QUORUM,
    TOKENS_PER_POINT,
    Contracts,
    ServedChain,
    Tree,
    address,
    ask,
    found,
    make_root,
    node_key,
    sign,
)
from support.swarm import make_manifest

from sapo_client.ledger.endpoints import EndpointStatus
from sapo_client.ledger.errors import LedgerError, LedgerUnavailable
from sapo_client.ledger.fraud import AccountPlaces, Balance, Equivocation, OverCap
from sapo_client.ledger.records import LeafQuestion, LedgerStatus, Stake
from sapo_client.ledger.service import LedgerClient
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.auditors import Auditors

A, B = address(ALICE), address(BOB)
NEXT_YEAR = int(time.time()) + 365 * 24 * 3600
PATIENCE_SECONDS = 60


@pytest.fixture
def ledger(contracts: Contracts, tmp_path: Path) -> Iterator[LedgerClient]:
    opened = _open(contracts, tmp_path)
    yield opened
    opened.close()


def _open(
    contracts: Contracts, folder: Path, *, urls: list[str] | None = None, **changes: Any
) -> LedgerClient:
    return LedgerClient(
        manifest=contracts.manifest(**changes),
        account=ALICE,
        rpc_urls=urls or [contracts.chain.url],
        outbox_path=folder / "outbox.sqlite",
    )


@asynccontextmanager
async def _running(ledger: LedgerClient) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.run)
        yield
        nursery.cancel_scope.cancel()


async def _until_idle(ledger: LedgerClient) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while ledger.status().pending:
            await trio.sleep(0.02)


async def test_the_right_chain_and_contracts_pass_the_check(ledger: LedgerClient) -> None:
    await ledger.check()
    assert await ledger.changes.auditors() == (Auditors(tuple(map(address, AUDITORS))), 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chain_id": 1}, "serves chain"),
        ({"registry": B}, "no NodeRegistry"),
        ({"ledger": B}, "no EpochLedger"),
        ({"epoch_seconds": EPOCH_SECONDS + 1}, "another clock"),
        ({"genesis_seconds": GENESIS_SECONDS + 1}, "another clock"),
    ],
)
async def test_another_chain_or_contract_fails_the_check(
    contracts: Contracts, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    ledger = _open(contracts, tmp_path, **changes)
    with pytest.raises(LedgerError, match=words) as refusal:
        await ledger.check()
    assert refusal.value.exit_code == 6
    assert refusal.value.hint
    ledger.close()


def test_a_swarm_without_a_chain_has_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no chain"):
        LedgerClient(manifest=make_manifest(), account=ALICE, rpc_urls=[], outbox_path=tmp_path / "o")


async def test_a_registered_node_is_listed_for_other_clients(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    contracts.register(BOB, node_key(2), NEXT_YEAR)
    assert await ledger.live_accounts() == {(B, node_key(2))}
    async with _running(ledger):
        await ledger.register(node_key(1), NEXT_YEAR)
        await ledger.register(node_key(1), NEXT_YEAR)
        await _until_idle(ledger)
    assert await ledger.live_accounts() == {(A, node_key(1)), (B, node_key(2))}
    contracts.revoke(BOB, node_key(2))
    assert await ledger.live_accounts() == {(A, node_key(1))}
    status = ledger.status()
    assert status == LedgerStatus(
        pending=0,
        confirmed=1,
        refused=0,
        stuck=0,
        last_error=None,
        lag_seconds=status.lag_seconds,
        last_receipt_seconds=contracts.chain.engine.header(
            contracts.chain.engine.head.block_number - 1
        ).timestamp,
        claims=frozenset({(A, node_key(1))}),
        endpoints=(EndpointStatus(contracts.chain.url, status.endpoints[0].head, None, 0),),
    )


async def test_an_epoch_is_posted_finalised_and_claimed(contracts: Contracts, ledger: LedgerClient) -> None:
    assert await ledger.last_record() is None
    tree = Tree({A: 7, B: 3})
    root = make_root(2, total=10, cumulative_root=tree.root)
    async with _running(ledger):
        in_any_order = reversed(sign(root, contracts.domain, AUDITORS))
        await ledger.post(EpochApproval(0, root), [*in_any_order, *sign(root, contracts.domain)])
        await _until_idle(ledger)
        live = await ledger.live_record()
        assert live is not None
        assert (live.root, await ledger.last_record()) == (root, None)
        contracts.chain.now_seconds = live.posted_at_seconds + await ledger.challenge_seconds()
        await ledger.finalise(live)
        await _until_idle(ledger)
        await ledger.claim(7, tree.proof(A))
        await _until_idle(ledger)
    record = await ledger.last_record()
    assert record == live
    assert await ledger.live_record() is None
    assert await ledger.record(2) == record
    assert await ledger.record(1) is None
    assert await ledger.claimed() == await ledger.claimed(A) == 7
    assert await ledger.balance(A) == 7 * TOKENS_PER_POINT
    assert await ledger.balance(B) == 0


async def test_a_false_posting_is_challenged(contracts: Contracts, ledger: LedgerClient) -> None:
    tree = Tree({A: await ledger.points_cap() + 1})
    root = replace(make_root(2, total=tree.points[A]), contribution_root=tree.root)
    contracts.post(root, sign(root, contracts.domain))
    over = OverCap(A, tree.place(A))
    async with _running(ledger):
        for _ in range(2):
            await ledger.challenge(2, over)
        await _until_idle(ledger)
    assert await ledger.live_record() is None
    assert await ledger.stake(address(AUDITORS[0])) == Stake(0, 0, 0)
    assert await ledger.balance() == QUORUM * (AUDITOR_BOND // 2)
    assert ledger.status().confirmed == 1


async def test_an_auditor_counts_while_it_is_bonded(contracts: Contracts, ledger: LedgerClient) -> None:
    assert await ledger.changes.bonded(map(address, AUDITORS)) == set(map(address, AUDITORS))
    vault = contracts.vault
    contracts.chain.send(AUDITORS[1], vault.address, vault.request_exit(1))
    others = {address(auditor) for auditor in AUDITORS if auditor is not AUDITORS[1]}
    assert await ledger.changes.bonded(map(address, AUDITORS)) == others


async def test_a_rejected_root_stays_rejected_and_another_with_the_same_points_is_accepted(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    root, chain = make_root(2), contracts.chain
    statements = (
        EpochApproval(0, root),
        EpochApproval(1, replace(root, archive_digest=Digest(bytes([9]) * 32))),
    )
    assert [await ledger.changes.is_rejected(each) for each in statements] == [False, False]
    contracts.post(root, sign(root, contracts.domain))
    assert [await ledger.changes.is_rejected(each) for each in statements] == [False, False]
    chain.now_seconds = ask(contracts, A)
    chain.send(AUDITORS[0], contracts.verifier.address, contracts.verifier.prove_hidden(A))
    assert [await ledger.changes.is_rejected(each) for each in statements] == [True, False]


async def test_an_equivocation_is_slashed_once(contracts: Contracts, ledger: LedgerClient) -> None:
    a, b, auditor = make_root(2), make_root(2, archive=8), AUDITORS[0]
    (of_a,), (of_b,) = (sign(root, contracts.domain, [auditor]) for root in (a, b))
    assert not await ledger.has_equivocated(address(auditor), 2, 0)
    async with _running(ledger):
        await ledger.challenge(2, Equivocation(0, a, b, of_a, of_b))
        await ledger.challenge(2, Equivocation(0, b, a, of_b, of_a))
        await _until_idle(ledger)
    assert await ledger.has_equivocated(address(auditor), 2, 0)
    status = ledger.status()
    assert (status.pending, status.confirmed, status.refused, status.last_error) == (0, 2, 0, None)


async def test_a_root_that_lost_a_signer_becomes_final_in_time_once_others_have_signed(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    root, other, domain = make_root(2), make_root(2, archive=8), contracts.domain
    contracts.post(root, sign(root, domain, AUDITORS[:QUORUM]))
    posted = await ledger.live_record()
    [of_root], [of_other] = (sign(each, domain, AUDITORS[:1]) for each in (root, other))
    contracts.prove(Equivocation(0, root, other, of_root, of_other))
    contracts.chain.now_seconds += await ledger.challenge_seconds()
    struck = await ledger.live_record()
    assert posted is not None
    assert struck == replace(posted, signers=0b110)
    async with _running(ledger):
        await ledger.finalise(struck)  # refused as long as it has no quorum
        with trio.fail_after(PATIENCE_SECONDS):
            while ledger.status().last_error is None:
                await trio.sleep(0.02)
        assert await ledger.next_epoch() == 0
        contracts.post(root, sign(root, domain, AUDITORS[1:]))
        await _until_idle(ledger)
    assert await ledger.last_record() == replace(posted, signers=0b1110)


async def test_signatures_for_the_live_posting_are_sent_before_queued_postings(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    """An auditor that queued another root of the epoch adds its signature to the one that was posted."""
    root, other, domain = make_root(2), make_root(2, archive=8), contracts.domain
    contracts.post(root, sign(root, domain, AUDITORS[:QUORUM]))
    [of_root], [of_other] = (sign(each, domain, AUDITORS[:1]) for each in (root, other))
    contracts.prove(Equivocation(0, root, other, of_root, of_other))
    async with _running(ledger):
        await ledger.post(EpochApproval(0, other), sign(other, domain, AUDITORS[1:]))
        with trio.fail_after(PATIENCE_SECONDS):
            while ledger.status().last_error is None:
                await trio.sleep(0.02)
        struck = await ledger.live_record()
        assert struck is not None
        await ledger.changes.complete(struck, EpochApproval(0, root), sign(root, domain, AUDITORS[1:]))
        with trio.fail_after(PATIENCE_SECONDS):
            while await ledger.live_record() == struck:
                await trio.sleep(0.02)
    assert await ledger.live_record() == replace(struck, signers=0b1110)
    assert await ledger.pending("post") == 1


async def test_a_beacon_uses_the_last_block_before_the_epoch(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    chain = contracts.chain
    moment = chain.engine.head.timestamp + 50
    chain.now_seconds = moment - 1
    contracts.register(BOB, node_key(2), NEXT_YEAR)
    last = bytes(chain.engine.head.hash)
    chain.now_seconds = moment
    contracts.register(BOB, node_key(3), NEXT_YEAR)
    assert await ledger.block_hash_before(moment) == last
    with pytest.raises(LedgerError, match="still to come"):
        await ledger.block_hash_before(int(time.time()) + 1_000)


async def test_a_draw_uses_the_first_block_at_or_after_a_time(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    chain = contracts.chain
    moment = chain.engine.head.timestamp + 50
    chain.now_seconds = moment - 1
    contracts.register(BOB, node_key(2), NEXT_YEAR)
    with pytest.raises(LedgerError, match="not there or not settled"):
        await ledger.block_hash_from(moment)
    chain.now_seconds = moment
    contracts.register(BOB, node_key(3), NEXT_YEAR)
    first = bytes(chain.engine.head.hash)
    contracts.register(BOB, node_key(4), NEXT_YEAR)
    assert await ledger.block_hash_from(moment) == first
    with pytest.raises(LedgerError, match="still to come"):
        await ledger.block_hash_from(int(time.time()) + 1_000)


async def test_an_unreachable_chain_is_reported_and_waited_for(tmp_path: Path) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    contracts = found(tmp_path / "chain.sqlite", port=port)
    chain = contracts.chain
    chain.close()
    ledger = _open(contracts, tmp_path)
    async with _running(ledger):
        await ledger.register(node_key(1), NEXT_YEAR)
        with trio.fail_after(PATIENCE_SECONDS):
            while ledger.status().last_error is None:
                await trio.sleep(0.02)
        assert "no answer from the chain" in str(ledger.status().last_error)
        assert ledger.status().lag_seconds is None
        with pytest.raises(LedgerUnavailable):
            await ledger.last_record()
        chain = ServedChain(tmp_path / "chain.sqlite", port=port)
        await _until_idle(ledger)
    assert ledger.status().confirmed == 1
    assert ledger.status().last_error is None
    assert contracts.registry.live_nodes(Account(A)) == (node_key(1),)
    ledger.close()
    chain.close()


async def test_while_an_endpoint_serves_another_chain_requests_wait(
    contracts: Contracts, ledger: LedgerClient, tmp_path: Path
) -> None:
    other = ServedChain(tmp_path / "other.sqlite", chain_id=5)
    contracts.chain.swap(other)
    with pytest.raises(LedgerError, match="serves chain 5") as refusal:
        await ledger.check()
    assert not refusal.value.transient  # a node does not start
    async with _running(ledger):
        await ledger.register(node_key(1), NEXT_YEAR)
        with trio.fail_after(PATIENCE_SECONDS):
            while ledger.status().last_error is None:
                await trio.sleep(0.02)
        with pytest.raises(LedgerError, match="serves chain 5") as later:
            await ledger.last_record()
        assert later.value.transient  # a node goes on
        contracts.chain.swap(other)
        await _until_idle(ledger)
    assert contracts.registry.live_nodes(Account(A)) == (node_key(1),)
    assert ledger.status().endpoints[0].trouble is None
    other.close()


async def test_a_repeated_question_is_answered_again(contracts: Contracts, ledger: LedgerClient) -> None:
    tree, none = Tree({A: 2}), Tree({})
    root = make_root(0, total=2)
    root = replace(root, contribution_root=tree.root, cumulative_root=tree.root)
    contracts.post(root, sign(root, contracts.domain))
    live = await ledger.live_record()
    assert live is not None
    places = AccountPlaces(A, none.place(A), tree.place(A), tree.place(A))
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    before, deadlines = token.balance(A), []
    async with _running(ledger):
        for _ in range(2):
            chain.now_seconds = chain.engine.head.timestamp + 1
            chain.send(DEPLOYER, token.address, token.approve(verifier.address, verifier.question_bond()))
            chain.send(DEPLOYER, verifier.address, verifier.ask(A))
            [question] = (await ledger.leaves.of_live(live)).values()
            deadlines.append(question.deadline_seconds)
            for _ in range(2):  # it is looked at again before the answer is there
                await ledger.leaves.answer(live, places, question)
            await _until_idle(ledger)
            assert await ledger.leaves.of_live(live) == {}
    assert deadlines[0] < deadlines[1]
    assert token.balance(A) - before == 2 * verifier.question_bond()


async def test_requests_that_are_too_late_do_not_block_later_ones(
    contracts: Contracts, ledger: LedgerClient
) -> None:
    """Others were faster, and a posting is live: such requests were tried for ever, before all later ones."""
    tree, none = Tree({A: 2}), Tree({})
    root = replace(make_root(0, total=2), contribution_root=tree.root, cumulative_root=tree.root)
    contracts.post(root, sign(root, contracts.domain))
    live = await ledger.live_record()
    assert live is not None
    places = AccountPlaces(A, none.place(A), tree.place(A), tree.place(A))
    async with _running(ledger):
        await ledger.leaves.reject_hidden(live, A)
        await ledger.leaves.answer(live, places, LeafQuestion(B, live.posted_at_seconds))
        await ledger.challenge(0, Balance(places))
        await _until_idle(ledger)
    status = ledger.status()
    assert (status.pending, status.confirmed, status.refused) == (0, 2, 1)
    assert await ledger.live_record() == live


@pytest.mark.parametrize("act", ["answer", "challenge"])
async def test_proofs_and_answers_longer_than_a_transaction_are_carried_out(
    contracts: Contracts, ledger: LedgerClient, act: str
) -> None:
    """What is recorded must be on the chain first: until then the contract refuses proof and answer."""
    number = int.from_bytes(A, "big")
    around = [Account((number ^ 1 << bit).to_bytes(20, "big")) for bit in range(160)]
    has = dict.fromkeys([A, *around], 1)
    points, after = Tree(has if act == "answer" else {**has, A: 2, around[0]: 0}), Tree(has)
    root = replace(make_root(0, total=161), contribution_root=points.root, cumulative_root=after.root)
    contracts.post(root, sign(root, contracts.domain))
    live = await ledger.live_record()
    assert live is not None
    places = AccountPlaces(A, Tree({}).place(A), points.place(A), after.place(A))
    chain, verifier = contracts.chain, contracts.verifier
    async with _running(ledger):
        if act == "challenge":
            await ledger.challenge(0, Balance(places))
            await _until_idle(ledger)
            assert await ledger.live_record() is None
        else:
            chain.now_seconds = chain.engine.head.timestamp + 1
            approval = contracts.token.approve(verifier.address, verifier.question_bond())
            chain.send(DEPLOYER, contracts.token.address, approval)
            chain.send(DEPLOYER, verifier.address, verifier.ask(A))
            [question] = (await ledger.leaves.of_live(live)).values()
            await ledger.leaves.answer(live, places, question)
            await _until_idle(ledger)
            assert await ledger.leaves.of_live(live) == {}
    assert (ledger.status().confirmed, ledger.status().refused) == (2, 0)
