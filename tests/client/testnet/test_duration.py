"""How long a testnet runs."""

from pathlib import Path

import pytest

from sapo_client.testnet.duration import reason_to_go_on
from sapo_client.testnet.node_record import NodeRecord, RecordedStep
from sapo_client.testnet.plan import Settings


def settings(steps: int) -> Settings:
    return Settings(
        nodes=2,
        attackers=0,
        epochs=8,
        epoch_seconds=50,
        seed=0,
        directory=None,
        report=Path("report"),
        steps=steps,
    )


def record(name: str, steps: int) -> NodeRecord:
    taken = [RecordedStep(n, 0, "t", 0.5, local=4, external=(), unproven=()) for n in range(steps)]
    return NodeRecord(name, steps=taken)


@pytest.mark.parametrize(
    ("steps", "epochs", "taken", "reason"),
    [
        (0, 8, {"ada": 0, "bo": 0}, None),
        (30, 8, {"ada": 30, "bo": 31}, None),
        (
            30,
            8,
            {"ada": 40, "bo": 16},
            "bo has taken 16 of 30 steps, so the run goes on: epoch 9 of at most 16",
        ),
        (
            30,
            15,
            {"ada": 0, "bo": 29},
            "ada has taken 0 of 30 steps, so the run goes on: epoch 16 of at most 16",
        ),
        (30, 16, {"ada": 0, "bo": 29}, None),
        (30, 8, {}, None),
    ],
)
def test_a_run_continues_while_its_slowest_node_lacks_steps(
    steps: int, epochs: int, taken: dict[str, int], reason: str | None
) -> None:
    running = [record(name, count) for name, count in taken.items()]
    assert reason_to_go_on(settings(steps), epochs, running) == reason
