"""The ledger's benchmark: real transactions, whose gas does not depend on the number of rollouts."""

from sapo_client.bench.ledger import BIND_TARGET, CLAIM_TARGET, EPOCH_TARGET, SWARMS, ledger_gas
from sapo_client.bench.settlement import DATA_TARGET, PROOF_TARGET, accounts_cost
from sapo_client.cli.bench import _gas_rows, _step_row
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


def test_every_step_of_a_swarm_of_many_accounts_stays_within_its_target() -> None:
    """More accounts than a message lists; the figures for 100,000 are in docs/results.md."""
    cost = accounts_cost(1_100)
    steps = {step.step: step for step in cost.steps}
    gas = {name: step.gas for name, step in steps.items() if step.gas is not None}
    assert gas.pop("post an epoch and make it final") <= EPOCH_TARGET
    assert gas.pop("claim for the first time") <= CLAIM_TARGET
    assert [name.partition(":")[0] for name in gas] == [
        "proveOverCap",
        "proveBalance",
        "proveEquivocation",
        "ask for an account's leaves",
        "answer",
        "proveHidden",
    ]
    assert max(gas.values()) <= PROOF_TARGET
    assert max(step.message_bytes for step in cost.steps if step.message_bytes is not None) <= DATA_TARGET
    assert {len(_step_row(step)) for step in cost.steps} == {6}
