"""The points behind a posted root, recomputed from the auditors' tallies."""

from sapo_client.testnet.ledger_view import EpochRow, explain_root, points_of
from sapo_client.testnet.node_record import NodeRecord
from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, Digest

ADA, BO, CLEO = (Account(bytes([n]) * 20) for n in (1, 2, 3))


def auditor(account: Account, points: dict[Account, int]) -> NodeRecord:
    counted = {account.hex(): count for account, count in points.items()}
    return NodeRecord(account.hex()[:2], account=account.hex(), tallies={3: counted})


def root(points: dict[Account, int]) -> Digest:
    return merkle.sum_root(sorted(points.items()))


STORIES = [
    auditor(ADA, {ADA: 10, BO: 20}),
    auditor(BO, {ADA: 12, BO: 18}),
    auditor(CLEO, {ADA: 11, CLEO: 500}),
    NodeRecord("dov", account="dd" * 20),
]
LIMITS = {"points_per_epoch": 100, "epoch_budget": 1_000}


def test_the_median_of_all_tallies_is_found() -> None:
    points = {ADA: 11, BO: 18}
    assert explain_root(root(points), 3, STORIES, **LIMITS) == {ADA.hex(): 11, BO.hex(): 18}


def test_a_proposal_that_missed_a_tally_is_found_too() -> None:
    points = {ADA: 10, BO: 18}
    assert explain_root(root(points), 3, STORIES, **LIMITS) == {ADA.hex(): 10, BO.hex(): 18}


def test_a_root_within_a_budget_is_found() -> None:
    limits = {**LIMITS, "epoch_budget": 19}
    points = {ADA: 7, BO: 11}  # of 11 and 18: 209/29, 342/29
    assert explain_root(root(points), 3, STORIES, **limits) == {ADA.hex(): 7, BO.hex(): 11}


def test_a_root_that_no_tallies_lead_to_stays_unexplained() -> None:
    assert explain_root(root({ADA: 99}), 3, STORIES, **LIMITS) is None
    assert explain_root(root({ADA: 11}), 4, STORIES, **LIMITS) is None


def test_points_add_up_over_what_could_be_explained() -> None:
    rows = [
        EpochRow(0, 5, "r", "c", {"aa": 5}),
        EpochRow(1, 9, "r", "c", None),
        EpochRow(2, 2, "r", "c", {"aa": 2}),
    ]
    assert points_of(rows, "aa") == 7
