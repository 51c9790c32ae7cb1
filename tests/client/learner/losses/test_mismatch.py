"""Mismatch of sampler and trainer, and completions excluded because of it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.policies import make_policy_folder
from support.trainers import make_trainer

from sapo_client.learner.batch import TrainingGroup, TrainingRow
from sapo_client.learner.generate import generator_for
from sapo_client.learner.losses.forms import LOSS_FORMS, LossName
from sapo_client.learner.losses.mismatch import (
    MismatchSummary,
    kept_rows,
    note_drift,
    summarise_mismatch,
)
from sapo_client.learner.trainer import Trainer


def row(old: tuple[float, ...], *, sampled: bool = True) -> TrainingRow:
    return TrainingRow((1, 2), tuple(range(len(old))), 1.0, old, sampled=sampled)


def test_drift_is_noted_once_for_sampled_rows_and_long_ratios_are_left_out() -> None:
    rows = [row((-1.0, -2.0)), row((-3.0,)), row((-3.0, -3.0), sampled=False)]
    logprobs = torch.tensor([[-0.9, -2.2], [-1.0, 7.0], [-1.0, -1.0]])
    old = torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-3.0, -3.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    assert kept_rows(rows, 3.0, old.device).tolist() == [True, True, True], "nothing is known yet"
    note_drift(rows, logprobs, old, mask)
    first = sum(math.exp(d) - d - 1 for d in (0.1, -0.2))
    second = math.exp(2) - 3
    assert rows[0].drift == pytest.approx((first, -0.1), abs=1e-6)
    assert rows[1].drift == pytest.approx((second, 2.0), abs=1e-6)
    assert rows[2].drift is None
    note_drift(rows, logprobs + 1, old, mask)
    assert rows[1].drift == pytest.approx((second, 2.0), abs=1e-6)
    assert kept_rows(rows, 3.0, old.device).tolist() == [True, False, True]
    assert kept_rows(rows, 0.0, old.device).tolist() == [True, True, True], "0 is no cap"
    at_the_cap = replace(rows[1], drift=(0.0, math.log(3.0)))
    assert kept_rows([at_the_cap], 3.0, old.device).tolist() == [True]
    found = summarise_mismatch(rows, 3.0)
    assert found.mean == pytest.approx((first + second) / 3, abs=1e-6)
    assert found.masked == 1
    assert summarise_mismatch([], 3.0) == MismatchSummary(0.0, 0)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return make_trainer(make_policy_folder(tmp_path / "model"))


def sampled_group(trainer: Trainer, shift: float = 0.0) -> TrainingGroup:
    """Return a sampled group whose first completion has a sampler log-probability lower by ``shift``."""
    prompt = trainer.policy.encode_prompt("12 + 7 =\n")
    [group] = generator_for(trainer.policy).sample(
        [prompt], completions_per_prompt=4, max_new_tokens=6, temperature=1.0, seed=1
    )
    first, *others = (item.logprobs for item in group)
    shifted = tuple(value - shift for value in first)
    completions = tuple(item.tokens for item in group)
    return TrainingGroup(prompt, completions, (1.0, 0.0, 0.0, 1.0), False, (shifted, *others))


def test_the_report_distinguishes_agreeing_samplers_from_others(trainer: Trainer) -> None:
    report = trainer.step([sampled_group(trainer)])
    assert (report.masked, report.clipped_share) == (0, 0.0)
    assert report.mismatch < 1e-9
    report = trainer.step([sampled_group(trainer, shift=2.0)])
    assert (report.masked, report.mismatch > 0.1) == (1, True)


def test_a_masked_completion_has_no_gradient_and_stays_in_the_denominator(tmp_path: Path) -> None:
    """A wrong answer whose ratio is beyond the cap of every token has no gradient either."""
    folder = make_policy_folder(tmp_path / "model")

    def gradient(shift: float, cap: float) -> torch.Tensor:
        trainer = make_trainer(folder, sequence_ratio_cap=cap)
        trainer.step([replace(sampled_group(trainer, shift), rewards=(0.0, 1.0, 1.0, 0.0))])
        moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]
        return torch.cat([moment.flatten() for moment in moments])

    beyond = gradient(shift=2.0, cap=0.0)
    assert torch.allclose(gradient(shift=0.6, cap=3.0), beyond, atol=1e-7)
    assert not torch.allclose(gradient(shift=0.6, cap=0.0), beyond, atol=1e-6)


@pytest.mark.parametrize("loss", LOSS_FORMS)
def test_every_form_of_the_loss_makes_rewarded_answers_likelier(tmp_path: Path, loss: LossName) -> None:
    trainer = make_trainer(make_policy_folder(tmp_path / "model"), loss=loss, max_new_tokens=6)
    group = sampled_group(trainer)

    def margin() -> float:
        rows = [TrainingRow(group.prompt, each, 0.0, None) for each in group.completions]
        with torch.no_grad():
            sums = trainer._logprobs(trainer.policy.model, rows).sum(1)
        return float(sums[0] + sums[3] - sums[1] - sums[2])

    before = margin()
    report = trainer.step([group])
    assert not report.rolled_back
    assert margin() > before
