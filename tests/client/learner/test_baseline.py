"""Advantages of other nodes' groups relative to this node's own mean reward."""

import math
from dataclasses import astuple, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policies import make_policy_folder

from sapo_client.learner.baseline import MIN_DEVIATION, MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup, training_rows
from sapo_client.learner.checkpoint import CheckpointStore, LearnerCounters
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer

FAMILY = 3
HALF_RIGHT = Baselines({FAMILY: FamilyBaseline(0.5, MIN_SAMPLES)})


def group(rewards: list[float], *, external: bool = True, family: int | None = FAMILY) -> TrainingGroup:
    completions = tuple((40 + index, 41) for index in range(len(rewards)))
    return TrainingGroup((30, 31), completions, tuple(rewards), external, None, family)


def advantages(groups: list[TrainingGroup], baselines: Baselines | None) -> list[float]:
    return [row.advantage for row in training_rows(groups, baselines=baselines)]


def test_wrong_completions_do_not_raise_the_advantage_of_planted_text() -> None:
    """Planted text that is accepted as right, with seven wrong completions that raise its group advantage."""
    poison_and_gibberish, poison_and_one = [1.0, *[0.0] * 7], [1.0, 0.0]
    among_itself = [
        advantages([group(rewards)], None)[0] for rewards in (poison_and_gibberish, poison_and_one)
    ]
    assert among_itself == [pytest.approx(2.4749, abs=1e-3), pytest.approx(0.7071, abs=1e-3)]
    here = [advantages([group(rewards)], HALF_RIGHT)[0] for rewards in (poison_and_gibberish, poison_and_one)]
    assert here == [1.0, 1.0]


def test_own_groups_and_families_without_a_baseline_have_group_advantages() -> None:
    plain = advantages([group([1.0, 0.0, 0.0])], None)
    unmeasured = Baselines({FAMILY: FamilyBaseline(0.5, MIN_SAMPLES - 1)})
    assert advantages([group([1.0, 0.0, 0.0], external=False)], HALF_RIGHT) == plain
    assert advantages([group([1.0, 0.0, 0.0], family=9)], HALF_RIGHT) == plain
    assert advantages([group([1.0, 0.0, 0.0], family=None)], HALF_RIGHT) == plain
    assert advantages([group([1.0, 0.0, 0.0])], unmeasured) == plain


@given(st.floats(0.0, 1.0), st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=16))
def test_advantages_are_bounded_and_do_not_depend_on_the_neighbours(
    mean: float, rewards: list[float]
) -> None:
    baseline = FamilyBaseline(mean, MIN_SAMPLES)
    values = baseline.advantages(rewards)
    assert values == tuple(baseline.advantages([reward])[0] for reward in rewards)
    assert all(abs(value) <= 1 / MIN_DEVIATION + 1e-9 for value in values)


def test_the_mean_follows_the_own_rewards() -> None:
    baseline = FamilyBaseline().after([1.0, 0.0, 0.0, 1.0])
    assert baseline == FamilyBaseline(0.5, 4)
    for _ in range(200):
        baseline = baseline.after([1.0] * 8)
    assert baseline.mean == pytest.approx(1.0, abs=0.01)
    assert math.isfinite(baseline.advantages([0.0])[0])


def test_a_trainer_updates_baselines_and_checkpoints_keep_them(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    settings = LearnerSettings(str(folder), tmp_path, learning_rate=1e-3, own_baseline=True)
    torch.manual_seed(0)
    trainer = Trainer(load_policy(str(folder), "cpu"), settings)
    own = group([1.0, 0.0] * 16, external=False)
    trainer.step([own, group([1.0, 1.0, 0.0])])
    assert trainer.baselines.families.keys() == {FAMILY}
    assert astuple(trainer.baselines.families[FAMILY]) == pytest.approx((0.5, 32))
    store = CheckpointStore(tmp_path / "checkpoints", str(folder))
    store.save(trainer, LearnerCounters(0))
    again = Trainer(load_policy(str(folder), "cpu"), settings)
    store.restore(again)
    assert again.baselines == trainer.baselines


def test_the_setting_own_baseline_changes_the_loss(tmp_path: Path) -> None:
    """If four own answers in five are right, a group with one right answer in eight has a positive loss."""
    folder = make_policy_folder(tmp_path / "model")
    settings = LearnerSettings(str(folder), tmp_path, learning_rate=1e-3)
    rewards = [1.0, *[0.0] * 7]
    losses = []
    for own_baseline in (False, True):
        trainer = Trainer(load_policy(str(folder), "cpu"), replace(settings, own_baseline=own_baseline))
        trainer.baselines = Baselines({FAMILY: FamilyBaseline(0.8, MIN_SAMPLES)})
        losses.append(trainer.step([group(rewards)]).loss)
    assert losses == [pytest.approx(0.0, abs=1e-5), pytest.approx(-(0.2 - 7 * 0.8) / 0.4 / 8, abs=1e-5)]


def test_the_advantage_of_a_first_right_answer_is_bounded_as_stated() -> None:
    assert FamilyBaseline(0.0, MIN_SAMPLES).advantages([1.0, 0.0]) == pytest.approx((8 / math.sqrt(7), 0.0))
    assert FamilyBaseline(0.25, MIN_SAMPLES).advantages([1.0, 0.0]) == pytest.approx((3**0.5, -(3**-0.5)))


def test_a_mean_is_the_arithmetic_one_of_256_values_and_then_moves_by_a_256th() -> None:
    rewards = [float(number % 3 == 0) for number in range(256)]
    before = FamilyBaseline().after(rewards)
    assert astuple(before) == pytest.approx((86 / 256, 256))
    after = before.after([1.0, 0.0])
    once = before.mean + (1.0 - before.mean) / 256
    assert astuple(after) == pytest.approx((once - once / 256, 258), rel=1e-12)
