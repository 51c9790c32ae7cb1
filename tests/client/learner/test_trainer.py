"""Training steps: skipped groups, undone steps, weights of external text, and rising rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from support.trainers import make_trainer

from sapo_client.learner import grpo
from sapo_client.learner.batch import TrainingGroup, TrainingRow, training_rows
from sapo_client.learner.generate import generator_for
from sapo_client.learner.trainer import Trainer
from sapo_verification.screens.likelihood import LogprobStatistics


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model")


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.parameters]


def external(rewards: list[float], start: int = 40) -> TrainingGroup:
    completions = tuple(tuple(range(start + i, start + 2 * i + 2)) for i in range(len(rewards)))
    return TrainingGroup((30, 31, 32), completions, tuple(rewards), external=True, behaviour=None)


INFORMATIVE = [external([1.0, 0.0, 0.0, 1.0]), external([0.0, 1.0, 0.0], start=60)]


def literal_gradient(
    trainer: Trainer, groups: list[TrainingGroup], by_completion: bool
) -> list[torch.Tensor]:
    """Return the gradient of the whole batch, computed row by row, groups without advantage included."""
    tokens = sum(group.tokens for group in groups)
    rows = sum(len(group.completions) for group in groups)
    model = trainer.policy.model
    model.zero_grad()
    for group in groups:
        advantages = grpo.group_advantages(torch.tensor(group.rewards))
        for completion, advantage in zip(group.completions, advantages, strict=True):
            logits = model(torch.tensor([[*group.prompt, *completion]])).logits[0].log_softmax(-1)
            positions = torch.arange(len(group.prompt) - 1, len(group.prompt) + len(completion) - 1)
            logprobs = logits[positions, torch.tensor(completion)]
            ratio = torch.exp(logprobs - logprobs.detach())
            loss = -(ratio * advantage).sum()
            (loss / (len(completion) * rows) if by_completion else loss / tokens).backward()
    return [gradient_of(parameter).clone() for parameter in trainer.parameters]


@pytest.mark.parametrize("by_completion", [False, True])
def test_skipping_groups_without_advantage_changes_no_gradient(folder: Path, by_completion: bool) -> None:
    groups = [external([1.0] * 5, start=80), *INFORMATIVE, external([0.0] * 3, start=90)]
    trainer = make_trainer(folder, length_normalised=by_completion)
    expected = literal_gradient(trainer, groups, by_completion)
    norm = float(torch.stack([gradient.norm() for gradient in expected]).norm())
    report = trainer.step(groups)
    assert report.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert (report.skipped_groups, report.external_groups, report.tokens) == (2, 4, 14 + 9)


def test_micro_batches_add_up_to_the_batch(folder: Path) -> None:
    whole, cut = make_trainer(folder), make_trainer(folder, micro_batch_tokens=8)
    reports = [trainer.step(INFORMATIVE) for trainer in (whole, cut)]
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
    assert reports[0].gradient_norm == pytest.approx(reports[1].gradient_norm, rel=1e-4)


def test_a_batch_without_advantage_changes_no_weight(folder: Path) -> None:
    trainer = make_trainer(folder)
    before = weights(trainer)
    report = trainer.step([external([0.0] * 4), external([1.0] * 4)])
    assert (report.step, report.tokens, report.skipped_groups, report.rolled_back) == (1, 0, 2, False)
    assert report.mean_reward == report.external_reward == 0.5
    assert report.local_reward == 0.0
    assert all(torch.equal(*pair) for pair in zip(before, weights(trainer), strict=True))


@pytest.mark.parametrize("passes", [1, 3])
def test_a_step_that_is_not_finite_is_undone(folder: Path, passes: int) -> None:
    trainer = make_trainer(folder, passes=passes)
    trainer.step(INFORMATIVE)
    before = weights(trainer)
    moments = [state["exp_avg"].clone() for state in trainer.optimizer.state.values()]
    poisoned = replace(INFORMATIVE[0], behaviour=((math.nan,) * 2, (0.0,) * 3, (0.0,) * 4, (0.0,) * 5))
    report = trainer.step([poisoned])
    assert (report.rolled_back, report.rollbacks, report.step) == (True, 1, 2)
    assert (report.loss, report.gradient_norm) == (0.0, 0.0)
    assert all(torch.equal(*pair) for pair in zip(before, weights(trainer), strict=True))
    after = [state["exp_avg"] for state in trainer.optimizer.state.values()]
    assert all(torch.equal(*pair) for pair in zip(moments, after, strict=True))
    assert not trainer.step(INFORMATIVE).rolled_back


def test_a_late_epoch_that_is_not_finite_undoes_the_early_ones(folder: Path) -> None:
    """At this learning rate the second epoch overflows."""
    trainer = make_trainer(folder, passes=3, learning_rate=1e36)
    before = weights(trainer)
    assert trainer.step(INFORMATIVE).rolled_back
    assert all(torch.equal(*pair) for pair in zip(before, weights(trainer), strict=True))


def test_later_epochs_move_off_policy_and_clip(folder: Path) -> None:
    trainer = make_trainer(folder, passes=4, learning_rate=3e-3)
    assert trainer.step(INFORMATIVE).clipped_share > 0


def old_logprobs(row: TrainingRow) -> tuple[float, ...]:
    """Return the log-probabilities before the first update, which must be known."""
    assert row.old is not None
    return row.old


def test_ratios_of_later_mini_batches_are_relative_to_the_policy_before_the_first(folder: Path) -> None:
    """If old log-probabilities were computed just before each update, no ratio would differ from one."""
    trainer = make_trainer(folder, mini_batches=4, learning_rate=1e-2)
    rows = training_rows(INFORMATIVE)
    with torch.no_grad():
        before = trainer._logprobs(trainer.policy.model, rows)
    report = trainer.step(INFORMATIVE)
    assert report.clipped_share > 0
    assert trainer.optimizer.state[trainer.parameters[0]]["step"] == 4
    trainer._fill_old_logprobs(rows)
    kept = torch.tensor([old_logprobs(row)[0] for row in rows])
    assert not torch.allclose(kept, before[:, 0], atol=1e-4), "the policy has moved since"


def test_old_logprobs_are_filled_before_the_first_update(folder: Path) -> None:
    trainer = make_trainer(folder, mini_batches=4, learning_rate=1e-2)
    rows = training_rows(INFORMATIVE)
    with torch.no_grad():
        before = trainer._logprobs(trainer.policy.model, rows)
    trainer._update(rows, INFORMATIVE)
    for row, values in zip(rows, before, strict=True):
        old = old_logprobs(row)
        assert old == pytest.approx(values[: len(old)].tolist(), abs=1e-5)


def test_mini_batches_have_equal_parts_of_the_denominator(folder: Path) -> None:
    """At a learning rate of almost 0, the mean loss of four mini-batches is the loss of the whole batch."""
    whole, cut = make_trainer(folder), make_trainer(folder, mini_batches=4, learning_rate=1e-12)
    reports = [trainer.step(INFORMATIVE) for trainer in (whole, cut)]
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-5)


def test_a_kl_term_keeps_the_policy_near_the_reference(folder: Path) -> None:
    """With it the policy moves less, and groups with equal rewards are trained too."""

    def moved(kl_weight: float = 0.0) -> float:
        trainer = make_trainer(folder, learning_rate=3e-3, kl_weight=kl_weight)
        for _ in range(12):
            trainer.step(INFORMATIVE)
        with torch.no_grad():
            rows = training_rows(INFORMATIVE)
            now = trainer._logprobs(trainer.policy.model, rows)
            start = make_trainer(folder)._logprobs(make_trainer(folder).policy.model, rows)
        return float(grpo.kl_divergence(now, start).sum())

    assert moved(kl_weight=1.0) < 0.5 * moved()
    level = [external([0.0] * 4)]
    trainer = make_trainer(folder, kl_weight=1.0, learning_rate=3e-3)
    trainer.step(INFORMATIVE)
    report = trainer.step(level)
    assert (report.tokens > 0, report.gradient_norm > 0) == (True, True)


def test_external_text_starts_on_policy(folder: Path) -> None:
    """Its old log-probabilities are this policy's own, so that the loss is minus the mean advantage."""
    report = make_trainer(folder).step(INFORMATIVE)
    total = sum(
        float(advantage) * len(completion)
        for group in INFORMATIVE
        for completion, advantage in zip(
            group.completions, grpo.group_advantages(torch.tensor(group.rewards)), strict=True
        )
    )
    assert report.loss == pytest.approx(-total / (14 + 9), abs=1e-5)
    assert report.clipped_share == 0.0


def own_samples(trainer: Trainer, count: int = 80) -> TrainingGroup:
    """Return a group without advantage, which only updates the statistics."""
    generator = generator_for(trainer.policy)
    (group,) = generator.sample(
        [(30, 31, 32)], completions_per_prompt=count, max_new_tokens=6, temperature=1.0, seed=1
    )
    tokens, values = zip(*((row.tokens, row.logprobs) for row in group), strict=True)
    return TrainingGroup((30, 31, 32), tokens, (0.0,) * count, external=False, behaviour=values)


def certain_of_own_samples(trainer: Trainer) -> None:
    """Set the statistics as after samples of certain tokens only, so that other text is improbable."""
    for _ in range(200):
        trainer.logprob_statistics = trainer.logprob_statistics.after((0.0,) * 4)


def test_likely_external_text_counts_in_full(folder: Path) -> None:
    plain, measured = make_trainer(folder), make_trainer(folder)
    measured.step([own_samples(measured)])
    assert measured.logprob_statistics.samples == 80
    reports = [trainer.step(INFORMATIVE) for trainer in (plain, measured)]
    assert [report.external_weight for report in reports] == [1.0, 1.0]
    assert reports[0].gradient_norm == pytest.approx(reports[1].gradient_norm, rel=1e-5)


def test_text_that_is_nearly_impossible_under_the_policy_has_a_small_weight(folder: Path) -> None:
    trainer = make_trainer(folder)
    with torch.no_grad():  # a policy that puts its whole probability on one token
        trainer.policy.model.get_output_embeddings().weight.mul_(60.0)
    certain_of_own_samples(trainer)
    report = trainer.step(INFORMATIVE)
    assert report.external_weight < 0.2
    own = replace(INFORMATIVE[0], external=False)
    assert trainer.step([own]).external_weight == 1.0, "own text always has weight 1"


def test_the_weight_scales_the_gradient(folder: Path) -> None:
    full, half = make_trainer(folder), make_trainer(folder)
    half.logprob_statistics = ConstantWeight(constant=0.5)
    reports = [trainer.step(INFORMATIVE) for trainer in (full, half)]
    assert reports[1].external_weight == 0.5
    assert reports[1].loss == pytest.approx(reports[0].loss / 2)
    assert reports[1].gradient_norm == pytest.approx(reports[0].gradient_norm / 2, rel=1e-4)
    mixed = make_trainer(folder)
    mixed.logprob_statistics = ConstantWeight(constant=0.0)
    own = [replace(group, external=False) for group in INFORMATIVE]
    assert mixed.step(own).gradient_norm == pytest.approx(reports[0].gradient_norm, rel=1e-4)


@dataclass(frozen=True, slots=True)
class ConstantWeight(LogprobStatistics):
    """Statistics that give all external text the same weight."""

    constant: float = 1.0

    def weight(self, logprobs: Sequence[float]) -> float:
        return self.constant


def test_the_reward_goes_up(folder: Path) -> None:
    """The reward is 1 for completions that begin with a digit; one of two groups is another policy's text."""
    trainer = make_trainer(folder, learning_rate=3e-3)
    generator = generator_for(trainer.policy)
    prompt = trainer.policy.encode_prompt("12 + 7 =\n")

    def own_group(seed: int) -> TrainingGroup:
        (group,) = generator.sample(
            [prompt], completions_per_prompt=32, max_new_tokens=4, temperature=1.0, seed=seed
        )
        rewards = tuple(float(row.text[:1].isdigit()) for row in group)
        tokens, values = zip(*((row.tokens, row.logprobs) for row in group), strict=True)
        return TrainingGroup(prompt, tokens, rewards, external=False, behaviour=values)

    texts = ("7 ", "x", "19", "M")
    foreign = TrainingGroup(
        prompt,
        tuple(trainer.policy.encode_completion(text, 4) for text in texts),
        (1.0, 0.0, 1.0, 0.0),
        external=True,
        behaviour=None,
    )
    reports = [trainer.step([own_group(seed), foreign]) for seed in range(60)]
    first, last = (sum(report.local_reward for report in part) / 10 for part in (reports[:10], reports[-10:]))
    assert first < 0.35
    assert last > 0.9
