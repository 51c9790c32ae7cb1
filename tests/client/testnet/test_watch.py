"""The live view's text."""

from collections import Counter

from sapo_client.testnet.story import RecordedStep, Story
from sapo_client.testnet.watch import Moment, headline, plain_lines, sparkline


def moment(**changes: object) -> Moment:
    steps = [
        RecordedStep(step=n, epoch=0, time="t", reward=0.5, local=4, external=("c",), unproven=())
        for n in range(1, 4)
    ]
    ada = Story("ada", account="aa", starts=1, steps=steps, peers=3, pool=9, refused=Counter(seen=2))
    fields = {
        "phase": "learning", "epoch": 1, "epochs": 4, "seconds_left": 61.7, "block": 12,
        "stories": [ada, Story("bo", starts=1), Story("cleo")], "points": {"aa": 5},
    }  # fmt: skip
    return Moment(**(fields | changes))  # type: ignore[arg-type]


def test_where_no_table_can_be_drawn() -> None:
    assert plain_lines(moment()) == [
        "learning  epoch 1 of 4  block 12  62 s left",
        "  ada: step 3  reward 0.50  peers 3  pool 9  sampled 3  refused 2  points 5",
        "  bo: started",
        "  cleo: starting",
    ]


def test_before_the_swarm_begins() -> None:
    assert headline(moment(epoch=None, block=None)) == "learning  before epoch 0  62 s left"


def test_sparklines_rise_with_the_curve() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0], 8) == "▁▅"
    assert sparkline([0.0] * 100 + [1.0] * 100, 4) == "▁▁██"
