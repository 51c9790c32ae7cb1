"""The ledger's benchmark: real transactions, whose gas does not depend on the number of rollouts."""

from sapo_client.bench.ledger import BIND_TARGET, CLAIM_TARGET, EPOCH_TARGET, SWARMS, ledger_gas
from sapo_client.cli.bench import _gas_rows
from sapo_client.lab.economy import Rules

SAME_GAS = 200 + 32 * 12
"""Zero bytes cost less than others: some in a root or a signature, and all that the first root adds to."""


def test_an_epoch_costs_the_same_in_every_swarm() -> None:
    gas = ledger_gas()
    assert [(epoch.accounts, epoch.rollouts) for epoch in gas.epochs] == [(a, a * p) for a, p in SWARMS]
    assert [(epoch.proof, epoch.first_claim) for epoch in gas.epochs] == [
        (7, True),
        (7, False),
        (13, True),
        (13, False),
    ]
    posts = [epoch.post for epoch in gas.epochs]
    endings = [epoch.finalise for epoch in gas.epochs]
    assert max(posts) - min(posts) <= SAME_GAS
    assert max(endings) - min(endings) <= SAME_GAS
    assert max(epoch.settled for epoch in gas.epochs) <= EPOCH_TARGET
    assert max(gas.bind) <= BIND_TARGET <= Rules().register_gas
    assert max(epoch.claim for epoch in gas.epochs) <= CLAIM_TARGET <= Rules().claim_gas
    assert {len(row) for row in _gas_rows(gas)} == {6}
