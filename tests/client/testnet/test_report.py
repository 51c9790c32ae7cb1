"""The report of a made-up run: whole Markdown, JSON and a real plot."""

import json
from collections import Counter
from pathlib import Path

from sapo_client.testnet import report
from sapo_client.testnet.attack_results import AttackRow
from sapo_client.testnet.ledger_view import Claim, EpochRow
from sapo_client.testnet.node_record import NodeRecord, RecordedStep
from sapo_client.testnet.plan import Settings
from sapo_client.testnet.plot import draw, external_shares, smooth
from sapo_client.testnet.verdict import RunOutcome

ADA = "aa" * 20


def outcome() -> RunOutcome:
    steps = [
        RecordedStep(
            step=n,
            epoch=n // 21,
            time=f"2026-11-22T10:00:{n:02}.000+00:00",
            reward=n / 100,
            local=4,
            external=("c",) * (n % 3),
            unproven=(),
        )
        for n in range(1, 41)
    ]
    ada = NodeRecord(
        "ada",
        account=ADA,
        peer_id="12D3",
        starts=1,
        steps=steps,
        max_peers=2,
        refused=Counter({"seen": 4, "no_signal": 9}),
    )
    return RunOutcome(
        epochs=2,
        records=(ada,),
        attacks=(AttackRow("code_in_answer", ("code_in_answer",), 3, {"code_in_answer": 3}, ("ada",), ()),),
        ledger=(EpochRow(1, 5, "ab" * 32, "cd" * 32, {ADA: 5}),),
        claim=Claim("ada", ADA, 0, 5, 100 * 10**18, 105 * 10**18),
        files=(),
        dead=(),
        attackers=1,
    )


MARKDOWN = """\
# a run

Swarm `id`.

Every condition holds.

![reward](reward.png)

## Nodes

| node | rounds | reward start | reward end | peers | shared | accepted | no signal \
| sampled | refused | points |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| ada | 40 | 0.055 | 0.355 | 2 | 0 | 0 | 9 | 40 | 4 | 5 |

Peers: most at one time, attackers included. Rollouts: shared by the node; accepted from others \
(authentic, in time); without signal (all answers earned the same reward; auditors check every rollout, \
other nodes only those they draw); used in its own training; refused. Points: what the ledger \
grants its account.

## Refused, by reason

| reason | ada |
| --- | ---: |
| seen | 4 |

Each reason is a rule of verification/README.md.

## Attacks

| attack | sent | to be refused for | refused for | by nodes | files created |
| --- | ---: | --- | --- | ---: | ---: |
| code_in_answer | 3 | code_in_answer | code_in_answer 3 | 1 | 0 |

## Ledger

| epoch | points | ada | contribution root |
| ---: | ---: | ---: | --- |
| 1 | 5 | 5 | abababababababab |

## Claim

| claim of | points paid before | after | tokens before | after |
| --- | ---: | ---: | ---: | ---: |
| ada | 0 | 5 | 100 | 105 |
"""


def test_the_markdown_report() -> None:
    assert report.markdown(outcome(), "a run", "id") == MARKDOWN


def test_everything_is_written(tmp_path: Path) -> None:
    settings = Settings(
        nodes=1, attackers=1, epochs=2, epoch_seconds=30, seed=0, directory=None, report=tmp_path / "report"
    )
    report.write(outcome(), settings, "id")
    assert sorted(path.name for path in settings.report.iterdir()) == [
        "report.json",
        "report.md",
        "reward.png",
    ]
    assert (settings.report / "reward.png").read_bytes().startswith(b"\x89PNG\r\n")
    document = json.loads((settings.report / "report.json").read_text())
    assert (document["failures"], document["nodes"][0]["sampled"], document["ledger"][0]["points"]) == (
        [],
        40,
        {ADA: 5},
    )


NOON = "2026-01-01T12:00"


def test_learnt_skills_have_a_panel_of_their_own(tmp_path: Path) -> None:
    steps = [
        RecordedStep(step, 0, f"{NOON}:{step:02}+00:00", 0.5, 8, (), (), {"bf": 1.0, "sums": reward})
        for step, reward in enumerate([0.0] * 10 + [0.5] * 10)
    ]
    heights = {}
    for name, kept, starts_differ in (
        ("plain", steps[10:], True),
        ("chance", steps, False),
        ("travelling", steps, True),
    ):
        record = NodeRecord("ada", steps=list(kept))
        draw([record], tmp_path / f"{name}.png", name, starts_differ=starts_differ)
        heights[name] = int.from_bytes((tmp_path / f"{name}.png").read_bytes()[20:24], "big")
    assert heights["travelling"] > heights["plain"] == heights["chance"]


def test_the_curves() -> None:
    assert smooth([1.0, 1.0, 1.0]) == [1.0, 1.0, 1.0]
    assert smooth([0.0, 1.0], 0.5) == [0.0, 2 / 3]
    record = NodeRecord(
        "x",
        steps=[
            RecordedStep(step=1, epoch=0, time="t", reward=0.0, local=6, external=("a", "b"), unproven=()),
            RecordedStep(step=2, epoch=0, time="t", reward=0.0, local=0, external=(), unproven=()),
        ],
    )
    assert external_shares(record) == [0.25, 0.0]
