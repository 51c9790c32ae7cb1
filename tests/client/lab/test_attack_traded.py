"""A learner that attackers teach one family and take another one from: the texts of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from sapo_client.lab.attackers import traded
from sapo_client.lab.attackers.traded import ATTACKER, TradePlan, TradeRun
from sapo_client.learner.imitation.demonstrations import OWN, DemonstrationText

Drawn = tuple[list[DemonstrationText], list[DemonstrationText]]


class Noted(TradeRun):
    """A run that remembers its draws."""

    def __init__(self, plan: TradePlan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.draws: list[Drawn] = []

    def _draw(self, texts: Sequence[DemonstrationText], own: Sequence[DemonstrationText]) -> Drawn:
        self.draws.append(super()._draw(texts, own))
        return self.draws[-1]


def test_both_families_are_shown_and_known_ones_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traded, "TEXTS", 8)
    (tmp_path / "events.jsonl").touch()
    plan = TradePlan(noise=0.0, rounds=1, steps=2, texts=8, held_out=1)
    run = Noted(plan, tmp_path)
    found = trio.run(run.run)
    shown = [(each.author, each.family) for texts, _ in run.draws for each in texts]
    assert set(shown) == {(ATTACKER, 1), (ATTACKER, 2)}
    rehearsed = [(each.author, each.family) for _, own in run.draws for each in own]
    assert set(rehearsed) <= {(OWN, 0), (OWN, 1)}
    assert rehearsed
    assert found["compared"] == [], "two steps are less than an average remembers"
    assert found["promoted"] == 0
