"""The live view's text."""

from collections import Counter
from dataclasses import replace

from sapo_client.testnet.node_record import NodeRecord, RecordedStep
from sapo_client.testnet.watch import SwarmSnapshot, headline, plain_lines, sparkline


def snapshot() -> SwarmSnapshot:
    steps = [
        RecordedStep(step=n, epoch=0, time="t", reward=0.5, local=4, external=("c",), unproven=())
        for n in range(1, 4)
    ]
    ada = NodeRecord("ada", account="aa", starts=1, steps=steps, peers=3, pool=9, refused=Counter(seen=2))
    return SwarmSnapshot(
        phase="learning",
        epoch=1,
        epochs=4,
        seconds_left=61.7,
        block=12,
        records=[ada, NodeRecord("bo", starts=1), NodeRecord("cleo")],
        points={"aa": 5},
    )


def test_plain_lines_without_a_terminal() -> None:
    assert plain_lines(snapshot()) == [
        "learning  epoch 1 of 4  block 12  62 s left",
        "  ada: step 3  reward 0.50  peers 3  pool 9  sampled 3  refused 2  points 5",
        "  bo: started",
        "  cleo: starting",
    ]


def test_the_headline_before_epoch_0() -> None:
    assert headline(replace(snapshot(), epoch=None, block=None)) == "learning  before epoch 0  62 s left"


def test_sparklines_rise_with_the_curve() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0], 8) == "▁▅"
    assert sparkline([0.0] * 100 + [1.0] * 100, 4) == "▁▁██"
