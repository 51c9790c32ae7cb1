"""The records of final epochs, read from endpoints that lag, are reorganised, or lie."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from eth_utils import keccak
from support.faulty import Mode
from support.ledger import (
    ALICE,
    AUDITORS,
    POINTS_CAP,
    QUORUM,
    Contracts,
    Tree,
    address,
    make_root,
    sign,
)
from support.lying_endpoint import Liar, Logs
from support.rewound import RewoundSite, forking_ledger

from sapo_client.ledger.contract import EpochLedgerContract
from sapo_client.ledger.errors import Disagreement, RecordHidden
from sapo_client.ledger.fraud import OverCap
from sapo_client.ledger.history import History
from sapo_client.ledger.records import EpochRecord, Tip
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Digest

A = address(ALICE)


class Site(RewoundSite[Liar]):
    """Contracts on a chain that can be reorganised, and the addresses at which it is read."""

    def history(self, endpoints: int = 1) -> tuple[History, list[Liar]]:
        rpc, liars = self.rpc(endpoints)
        return History(EpochLedgerContract(rpc, self.contracts.deployment.ledger)), liars

    def post(self, root: EpochRoot) -> EpochRecord:
        self.contracts.post(root, sign(root, self.contracts.domain))
        return EpochRecord(root, self.engine.head.timestamp, (1 << QUORUM) - 1)

    def settle(self, epoch: int) -> EpochRecord:
        record = self.post(make_root(epoch, base_root=self.contracts.base_root, total=epoch))
        self.contracts.finalise()
        return record

    def reject(self, epoch: int) -> None:
        tree = Tree({A: POINTS_CAP + 1})
        root = make_root(epoch, base_root=self.contracts.base_root, total=POINTS_CAP + 1)
        self.post(replace(root, contribution_root=tree.root))
        self.contracts.prove(OverCap(A, tree.place(A)))
        for auditor in AUDITORS[:QUORUM]:
            self.contracts.bond(auditor)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Contracts, int]]:
    with forking_ledger(tmp_path_factory.mktemp("forking")) as contracts:
        yield contracts, contracts.chain.engine.head.block_number


@pytest.fixture
def site(deployed: tuple[Contracts, int]) -> Site:
    """The chain as after the deployment."""
    return Site(*deployed, Liar)


def test_before_the_first_final_epoch_the_history_is_empty(site: Site) -> None:
    history, [endpoint] = site.history()
    assert site.contracts.ledger.tip() == Tip(Digest((1).to_bytes(32, "big")), 0)
    assert (history.last(), history.record(0), history.before(9), history.all()) == (None, None, None, [])
    site.post(make_root(0))
    assert (history.last(), endpoint.sought) == (None, [])


def test_a_block_shows_the_epoch_that_was_final_in_it(site: Site) -> None:
    records, blocks = [], []
    for epoch in (1, 4):
        before = site.engine.head.block_number
        records.append(site.settle(epoch))
        blocks.append((before, site.engine.head.block_number))
    site.post(make_root(5, base_root=site.contracts.base_root))
    history, _ = site.history()
    (unborn, first), (still_first, second) = blocks
    found = [history.by_block(block) for block in (unborn, first - 1, first, still_first, second - 1)]
    assert found == [None, None, records[0], records[0], records[0]]
    assert history.by_block(second) == history.by_block(second + 9) == records[1]


def test_epochs_are_found_across_skipped_and_rejected_ones(site: Site) -> None:
    first = site.settle(1)
    site.reject(2)
    second = site.settle(2)
    site.reject(4)
    third = site.settle(6)
    history, _ = site.history()
    assert history.all() == [first, second, third]
    assert history.last() == third
    assert [history.record(epoch) for epoch in range(8)] == [
        None, first, second, None, None, None, third, None,
    ]  # fmt: skip
    assert [history.before(epoch) for epoch in (0, 1, 2, 3, 6, 7)] == [
        None, None, first, second, second, third,
    ]  # fmt: skip


def test_each_record_is_read_once(site: Site) -> None:
    records, blocks = [], []
    for epoch in range(3):
        records.append(site.settle(epoch))
        blocks.append(site.engine.head.block_number)
        site.network.fill(3)
    history, [endpoint] = site.history()
    for _ in range(2):
        assert history.last() == records[-1]
    assert endpoint.sought == [(blocks[-1], blocks[-1])]
    for _ in range(2):
        assert history.all() == records
    assert endpoint.sought[1:] == [(0, blocks[1])]  # the oldest came with it
    records.append(site.settle(3))
    blocks.append(site.engine.head.block_number)
    assert history.last() == records[-1]
    assert history.all() == records
    assert endpoint.sought[2:] == [(blocks[-1], blocks[-1])]


def test_an_endpoint_cannot_displace_records_with_invented_ones(site: Site) -> None:
    """More than a node keeps in memory, beside the genuine one: the genuine one is still read once."""
    records = [site.settle(epoch) for epoch in range(2)]
    history, liars = site.history(2)

    def flood(logs: Logs) -> Logs:
        words = [bytes(28) + number.to_bytes(4, "big") for number in range(10_001)]
        return [*logs, *({**logs[0], "data": "0x" + (bytes(288) + word).hex()} for word in words)]

    liars[1].tamper = flood
    assert history.all() == records
    asked = [len(endpoint.sought) for endpoint in liars]
    assert history.all() == records
    assert [len(endpoint.sought) for endpoint in liars] == asked


def _drop(logs: Logs) -> Logs:
    return []


def _change(logs: Logs) -> Logs:
    return [{**log, "data": log["data"][:-1] + ("1" if log["data"][-1] == "0" else "0")} for log in logs]


def _cut(logs: Logs) -> Logs:
    return [{**log, "data": log["data"][:-2]} for log in logs]


@pytest.mark.parametrize("tamper", [_drop, _change, _cut])
def test_an_endpoint_that_hides_or_changes_a_record_is_detected(
    site: Site, tamper: Callable[[Logs], Logs]
) -> None:
    records = [site.settle(epoch) for epoch in range(2)]
    history, liars = site.history(2)
    liars[0].tamper = tamper
    assert history.all() == records
    assert site.told == ["http://0: it hides or changes the record of a final epoch"]


@pytest.mark.parametrize("tamper", [_drop, _change, _cut])
def test_a_record_that_no_endpoint_returns_is_reported(site: Site, tamper: Callable[[Logs], Logs]) -> None:
    record = site.settle(0)
    history, [endpoint] = site.history()
    endpoint.tamper = tamper
    block = site.engine.head.block_number
    with pytest.raises(RecordHidden, match=f"(?m)recorded in block {block}$") as error:
        history.last()
    assert (error.value.transient, site.told) == (True, [])
    assert error.value.hint
    endpoint.tamper = lambda logs: logs
    assert history.last() == record


def test_a_forged_history_convinces_no_majority(site: Site) -> None:
    record = site.settle(0)
    history, liars = site.history(3)
    forged = bytes(31) + b"\x07" + bytes(9 * 32)
    liars[0].tip = "0x" + keccak(forged).hex() + (1).to_bytes(32, "big").hex()
    liars[0].tamper = lambda logs: [{**log, "data": "0x" + forged.hex()} for log in logs]
    assert history.last() == record
    two, [liar, _] = site.history(2)
    liar.tip = liars[0].tip
    with pytest.raises(Disagreement, match=r"EpochLedger\.lastFinal"):
        two.last()


def test_a_record_removed_by_a_reorganisation_is_forgotten(site: Site) -> None:
    history, [endpoint] = site.history()
    first = site.settle(0)
    before = site.engine.head.block_number
    site.settle(1)
    assert history.last() != first
    site.engine.rewind(before)
    assert (history.last(), history.record(1)) == (first, None)
    other = site.settle(2)
    assert history.all() == [first, other]
    assert len(endpoint.sought) == 3


def test_a_record_moved_to_another_block_is_unchanged(site: Site) -> None:
    record = site.settle(0)
    history, [endpoint] = site.history()
    assert history.last() == record
    tip, sought = site.contracts.ledger.tip(), list(endpoint.sought)
    site.engine.rewind(tip.block - 1)
    site.network.fill(2)
    site.contracts.finalise()
    assert site.contracts.ledger.tip() == Tip(tip.history, tip.block + 2)
    assert (history.last(), endpoint.sought) == (record, sought)
    later = site.settle(1)
    assert history.all() == [record, later]


def test_an_endpoint_that_lags_delays_new_values_without_penalty(site: Site) -> None:
    first = site.settle(0)
    history, endpoints = site.history(2)
    endpoints[0].turn(Mode.STALE)
    second = site.settle(1)
    assert history.last() == first
    endpoints[0].turn(Mode.GOOD)
    assert (history.last(), site.told) == (second, [])


def test_two_honest_endpoints_of_three_suffice(site: Site) -> None:
    site.settle(0)
    history, endpoints = site.history(3)
    endpoints[2].turn(Mode.STALE)
    endpoints[0].tamper = _drop
    second = site.settle(1)
    assert history.last() == second
    assert site.told == ["http://0: it hides or changes the record of a final epoch"]


def test_the_roots_by_a_block_reach_back_to_the_last_before_an_epoch(site: Site) -> None:
    contracts = site.contracts
    roots = []
    for epoch in (3, 5, 6, 9):
        contracts.settle(epoch, {A: epoch})
        record = contracts.history.last()
        assert record is not None
        roots.append(record.root)
    history, _ = site.history()
    head = contracts.chain.engine.head.block_number
    tip = contracts.ledger.tip().block
    assert history.roots_by(head, 0) == roots
    assert history.roots_by(tip, 5) == roots
    assert history.roots_by(tip - 1, 5) == roots[:3]
    assert history.roots_by(tip - 1, 6) == roots[1:3]
    assert history.roots_by(tip - 1, 7) == roots[2:3]
    assert history.roots_by(0, 0) == []
