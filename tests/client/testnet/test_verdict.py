"""The conditions of a run: one run that meets all, and each way to fail one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sapo_client.testnet.attack_results import AttackRow
from sapo_client.testnet.ledger_view import Claim, EpochRow
from sapo_client.testnet.node_record import NodeRecord, RecordedStep
from sapo_client.testnet.verdict import RunOutcome, failures


def step(
    number: int, reward: float, external: tuple[str, ...] = ("c",), unproven: tuple[str, ...] = ()
) -> RecordedStep:
    return RecordedStep(
        step=number, epoch=0, time="t", reward=reward, local=4, external=external, unproven=unproven
    )


def record(name: str, steps: list[RecordedStep] | None = None) -> NodeRecord:
    return NodeRecord(name, account=name * 20, steps=[step(1, 0.1), step(2, 0.2)] if steps is None else steps)


ATTACK = AttackRow("malformed", ("not_canonical",), 3, {"not_canonical": 3}, ("ada",), ())
CLAIM = Claim("ada", "aa", 0, 5, 100, 600)
GOOD = RunOutcome(
    epochs=3,
    records=(record("ada"), record("bo")),
    attacks=(ATTACK,),
    ledger=tuple(EpochRow(epoch, 9, "r", "c", {}) for epoch in (1, 2)),
    claim=CLAIM,
    files=(),
    dead=(),
    attackers=1,
)


FEW_STEPS = (
    "a node made only 2 training steps, and below 30 learning need not show: run it while the machine does"
    " nothing else, or give it more time (sapo testnet up --epoch-seconds 150)"
)


def with_ada(steps: list[RecordedStep]) -> RunOutcome:
    return replace(GOOD, records=(record("ada", steps), record("bo")))


def faulty() -> RunOutcome:
    ada = record("ada")
    ada.service_failures.append("gossip: KeyError()")
    return replace(GOOD, records=(ada,))


def test_a_run_that_meets_all_conditions_has_no_failures() -> None:
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (lambda: with_ada([]), ["ada made no training step"]),
        (lambda: with_ada([step(1, 0.5)]), ["ada made only one training step"]),
        (
            lambda: with_ada([step(1, 0.1, ()), step(2, 0.2, ())]),
            ["ada trained on no rollout of others"],
        ),
        (
            lambda: with_ada([step(1, 0.1), step(2, 0.2, ("x", "y"), ("x",))]),
            ["ada trained on 1 rollouts that it had not verified"],
        ),
        (
            lambda: with_ada([step(1, 0.15), step(2, 0.1)]),
            ["ada's reward fell: 0.150 to 0.100", FEW_STEPS],
        ),
        (
            lambda: replace(GOOD, records=(record("ada", [step(1, 0.2), step(2, 0.2)]),)),
            ["the nodes' mean reward did not rise: 0.200 to 0.200", FEW_STEPS],
        ),
        (faulty, ["ada had an internal fault: gossip: KeyError()"]),
        (lambda: replace(GOOD, ledger=GOOD.ledger[:1]), ["the ledger lacks epoch 2"]),
        (
            lambda: replace(GOOD, ledger=(GOOD.ledger[0], EpochRow(2, 0, "r", "c", {}))),
            ["epoch 2 was posted with no points"],
        ),
        (lambda: replace(GOOD, claim=None), ["no reward was claimed"]),
        (
            lambda: replace(GOOD, claim=replace(CLAIM, error="no answer")),
            ["ada's reward was not paid: no answer"],
        ),
        (
            lambda: replace(GOOD, claim=replace(CLAIM, tokens_after=100)),
            ["ada's reward was not paid"],
        ),
        (lambda: replace(GOOD, claim=replace(CLAIM, points_after=0)), ["ada's reward was not paid"]),
        (lambda: replace(GOOD, attacks=()), ["the attackers sent nothing"]),
        (
            lambda: replace(GOOD, attacks=(replace(ATTACK, nodes=()),)),
            ["no node refused malformed for not_canonical"],
        ),
        (
            lambda: replace(GOOD, attacks=(replace(ATTACK, trained=("c",)),)),
            ["a node trained on malformed"],
        ),
        (lambda: replace(GOOD, files=("/x/pwn",)), ["an answer created the file /x/pwn"]),
        (lambda: replace(GOOD, dead=("bo",)), ["bo exited by itself"]),
    ],
)
def test_each_condition_fails_by_name(outcome: Callable[[], RunOutcome], failed: list[str]) -> None:
    assert failures(outcome()) == failed


def test_a_run_of_many_steps_without_a_rise_fails() -> None:
    level = [step(number, 0.2) for number in range(1, 31)]
    assert failures(replace(GOOD, records=(record("ada", level),))) == [
        "the nodes' mean reward did not rise: 0.200 to 0.200"
    ]


def test_the_first_epoch_may_be_missing_and_no_attackers_need_no_attacks() -> None:
    assert failures(replace(GOOD, attacks=(), attackers=0)) == []
