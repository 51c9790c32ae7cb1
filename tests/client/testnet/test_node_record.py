"""Node records accumulated from recorded events, compared whole."""

import math
from collections import Counter
from statistics import variance

import pytest

from sapo_client.observe.events import Event
from sapo_client.testnet.node_record import NodeRecord, RecordedStep, Trend, read_record, trend

ADA, BO = "aa" * 20, "bb" * 20
ONE, TWO, THREE = "11" * 32, "22" * 32, "33" * 32

EVENTS: list[Event] = [
    {
        "event": "node_started",
        "account": ADA,
        "peer_id": "12D3",
        "addresses": ["/ip4/127.0.0.1/tcp/1/p2p/12D3"],
        "step": 0,
    },
    {"event": "published", "content_id": ONE, "epoch": 0, "slot": 0, "family": "bf", "peers": 2},
    {"event": "admitted", "content_id": TWO, "account": BO, "node": "00", "forwarder": "12D4"},
    {"event": "verified", "content_id": TWO, "account": BO, "mean_reward": 0.5},
    {"event": "admitted", "content_id": THREE, "account": BO, "node": "00", "forwarder": "12D4"},
    {
        "event": "step",
        "time": "t1",
        "step": 1,
        "epoch": 0,
        "reward": 0.25,
        "local": [ONE],
        "families": {"bf": 0.25},
        "external": [
            {"content_id": TWO, "account": BO, "node": "00"},
            {"content_id": THREE, "account": BO, "node": "00"},
        ],
        "pool": 7,
        "peers": 3,
    },
    {"event": "verified", "content_id": THREE, "account": BO, "mean_reward": 0.5},
    {"event": "refused", "reason": "no_signal", "stage": 10, "message": None, "content_id": THREE},
    {"event": "refused", "reason": "bad_signature", "stage": 7, "message": "ff" * 32, "content_id": None},
    {"event": "refused", "reason": "flood", "stage": 0, "message": None, "forwarder": "12D9", "count": 12},
    {"event": "refusals_counted", "count": 9, "reasons": {"bad_signature": 4, "flood": 5}, "forwarders": 2},
    {"event": "tally", "epoch": 0, "points": {f"0x{ADA}": 3, BO: 4}},
    {"event": "epoch_final", "epoch": 0, "total": 7},
    {"event": "learner_restarted", "step": 1, "why": "killed"},
    {"event": "ledger_error", "text": "no answer"},
    {"event": "service_failed", "service": "gossip", "error": "KeyError()"},
    {"event": "something_new", "value": 1},
    {"event": "stopped", "step": 1, "why": "SIGTERM"},
]


def test_a_whole_file_becomes_one_record() -> None:
    assert read_record("ada", EVENTS) == NodeRecord(
        name="ada",
        account=ADA,
        peer_id="12D3",
        addresses=("/ip4/127.0.0.1/tcp/1/p2p/12D3",),
        starts=1,
        stopped=True,
        steps=[
            RecordedStep(
                step=1,
                epoch=0,
                time="t1",
                reward=0.25,
                local=1,
                external=(TWO, THREE),
                unproven=(THREE,),  # verified only after the step: order is what counts
                families={"bf": 0.25},
            )
        ],
        published={ONE},
        admitted={TWO: BO, THREE: BO},
        verified={TWO, THREE},
        refused=Counter({"flood": 17, "no_signal": 1, "bad_signature": 5}),
        refused_messages={"ff" * 32: "bad_signature"},
        refused_contents={THREE: {"no_signal"}},
        floods=Counter({"12D9": 12, "": 5}),
        tallies={0: {ADA: 3, BO: 4}},
        posted={0},
        peers=3,
        max_peers=3,
        pool=7,
        learner_restarts=1,
        ledger_errors=["no answer"],
        service_failures=["gossip: KeyError()"],
    )


TEN, TWENTY = variance(range(10)) / 10, variance(range(20)) / 20
"""Squared errors of means of so many numbers in a row."""


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((), None),
        ((0.5,), None),
        ((0.1, 0.3), Trend(0.1, 0.3)),
        ((0.1, 0.9, 0.3), Trend(0.1, 0.3)),
        (tuple(float(i) for i in range(30)), Trend(4.5, 24.5, math.sqrt(TEN + TEN))),
        (
            tuple(float(i) for i in range(100)),
            Trend(4.5, 89.5, math.sqrt(TEN + TWENTY)),
        ),
    ],
)
def test_a_trend_compares_ends_that_do_not_overlap(
    rewards: tuple[float, ...], expected: Trend | None
) -> None:
    assert trend(rewards) == expected


def test_a_fall_within_chance_does_not_count() -> None:
    assert [Trend(0.5, end, error=0.05).fell for end in (0.5, 0.41, 0.39)] == [False, False, True]


def test_families_without_a_right_answer_at_first_are_lacking() -> None:
    steps = [
        RecordedStep(step, 0, "t", 0.0, 1, (), (), {"bf": 0.5, "sums": 0.0 if step < 11 else 1.0})
        for step in range(1, 31)
    ]
    assert NodeRecord("ada", steps=steps).lacking() == ("sums",)
    assert NodeRecord("ada").lacking() == ()
