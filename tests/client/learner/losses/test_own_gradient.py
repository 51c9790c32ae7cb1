"""Completions of others are trained only if they agree with the own groups' gradient."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from support.trainers import make_trainer

from sapo_client.learner.batch import TrainingGroup, TrainingRow, training_rows
from sapo_client.learner.losses.own_gradient import OwnGradient
from sapo_client.learner.trainer import Trainer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model")


def group(number: int, *, external: bool, rewards: Sequence[float] = (1.0, 0.0, 0.0, 1.0)) -> TrainingGroup:
    """Return a group of its own completions; all have one prompt, so that they pull at the same weights."""
    completions = tuple(
        tuple(20 + (7 * number + 3 * place + 5 * token) % 60 for token in range(3 + place))
        for place in range(len(rewards))
    )
    return TrainingGroup((30, 31, 32), completions, tuple(rewards), external=external, behaviour=None)


def turned(one: TrainingGroup) -> TrainingGroup:
    """Return the same text from another account, with right and wrong exchanged."""
    return replace(one, external=True, rewards=tuple(1.0 - reward for reward in one.rewards))


OWN = group(0, external=False)


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.parameters]


def moments(trainer: Trainer) -> list[torch.Tensor]:
    """Return the first moments, which after one step are a tenth of the gradient."""
    return [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]


def slopes(trainer: Trainer, groups: Sequence[TrainingGroup]) -> list[list[torch.Tensor]]:
    """Return the gradient of each row's advantage times its log-probability, row by row."""
    found = []
    for row in training_rows(groups):
        trainer.policy.model.zero_grad()
        logits = trainer.policy.model(torch.tensor([[*row.prompt, *row.completion]])).logits[0]
        positions = torch.arange(len(row.prompt) - 1, row.width - 1)
        logprobs = logits.log_softmax(-1)[positions, torch.tensor(row.completion)]
        (row.advantage * logprobs.sum()).backward()
        found.append([gradient_of(parameter).clone() for parameter in trainer.parameters])
    trainer.policy.model.zero_grad(set_to_none=True)
    return found


def test_agreement_is_the_sign_of_the_inner_product_of_two_gradients(folder: Path) -> None:
    """The second reader is a backward pass for each completion, which two forward passes stand for."""
    trainer = make_trainer(folder)
    own = [sum(parts) for parts in zip(*slopes(trainer, [OWN]), strict=True)]
    others = [group(number, external=True) for number in range(1, 9)]
    products = []
    for number, one in enumerate(others):
        inner = [
            sum(float((theirs * ours).sum()) for theirs, ours in zip(each, own, strict=True))
            for each in slopes(trainer, [one])
        ]
        rows = training_rows([one])
        products += [(number, row.completion, value) for row, value in zip(rows, inner, strict=True)]
    sums = [sum(value for number, _, value in products if number == each) for each in range(len(others))]
    expected = {(number, text) for number, text, value in products if value > 0.0 and sums[number] > 0.0}
    assert 4 < len(expected) < 28
    assert 0 < sum(each <= 0.0 for each in sums) < len(sums), "whole groups are left out"
    assert sum(sums[number] > 0.0 and value <= 0.0 for number, _, value in products) > 0, "and single rows"

    mean = OwnGradient(trainer.parameters)
    for parameter, gradient in zip(trainer.parameters, own, strict=True):
        parameter.grad = -gradient  # of a loss, which falls where the advantage's text gets likelier
    mean.note(4)
    rows = training_rows(others)
    agreeing = mean.agreeing(rows, trainer._summed_logprobs)
    assert {(row.group, row.completion) for row in agreeing} == expected
    assert {(row.group, row.completion) for row in rows if row.weight != 0.0} == expected


def test_groups_with_an_opposing_gradient_are_not_trained(folder: Path) -> None:
    alone, beside = (make_trainer(folder, agreement=True) for _ in range(2))
    expected = alone.step([OWN])
    report = beside.step([OWN, turned(OWN)])
    assert report.external_weights == (0.0,)
    for mine, theirs in zip(weights(alone), weights(beside), strict=True):
        # the opposing group counts in the denominator, to which AdamW's first step is indifferent
        assert torch.allclose(mine, theirs, atol=1e-5)
    assert report.gradient_norm == pytest.approx(expected.gradient_norm / 2, rel=1e-4)


def test_groups_with_an_agreeing_gradient_are_trained_as_without_the_setting(folder: Path) -> None:
    plain, agreed = make_trainer(folder), make_trainer(folder, agreement=True)
    own = group(0, external=False, rewards=(1.0, 0.0, 0.0, 0.0))
    same = replace(own, external=True)
    reports = [trainer.step([own, same]) for trainer in (plain, agreed)]
    assert [report.external_weights for report in reports] == [(1.0,), (1.0,)]
    assert reports[1].gradient_norm == pytest.approx(reports[0].gradient_norm, rel=1e-4)
    assert reports[1].loss == pytest.approx(reports[0].loss, rel=1e-4) != 0.0
    # gradients, not weights: the first update of AdamW moves one of which nothing but rounding is left, too
    for mine, theirs in zip(moments(plain), moments(agreed), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-8)


def test_without_an_own_gradient_no_external_group_is_trained(folder: Path) -> None:
    trainer = make_trainer(folder, agreement=True)
    before = weights(trainer)
    uninformative = replace(OWN, rewards=(0.0,) * 4)
    report = trainer.step([uninformative, replace(OWN, external=True)])
    assert (report.external_weights, report.gradient_norm) == ((0.0,), 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))


def test_a_mini_batch_of_which_nothing_is_trained_makes_no_update(folder: Path) -> None:
    """Own and other rows alternate in length, so that the second mini-batch has others' rows alone."""

    def of_lengths(lengths: Sequence[int], *, external: bool) -> TrainingGroup:
        texts = tuple(tuple(20 + (3 * token + length) % 60 for token in range(length)) for length in lengths)
        return replace(group(0, external=external), completions=texts)

    own, others = of_lengths((3, 5, 7, 9), external=False), of_lengths((4, 6, 8, 10), external=True)
    alone, beside = make_trainer(folder), make_trainer(folder, agreement=True, mini_batches=2)
    alone.step([own])
    assert beside.step([own, others]).external_weights == (0.0,)
    for mine, theirs in zip(weights(alone), weights(beside), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_own_gradients_of_earlier_steps_count(folder: Path) -> None:
    """In a step whose own groups have no advantage, others' text is compared with those before."""
    trainer = make_trainer(folder, agreement=True)
    trainer.step([OWN, turned(OWN)])
    uninformative = replace(OWN, rewards=(0.0,) * 4)
    report = trainer.step([uninformative, replace(OWN, external=True), turned(OWN)])
    assert report.external_weights == (1.0, 0.0)
    assert report.gradient_norm > 0.0


def test_own_gradients_are_noted_from_the_first_text_of_others_on(folder: Path) -> None:
    """A node without text of others keeps no mean; one with it updates the mean in rounds without it, too."""
    trainer = make_trainer(folder, agreement=True)
    trainer.step([OWN])
    assert not trainer.own_gradient.is_known
    trainer.step([OWN, turned(OWN)])
    before = [mean.clone() for mean in trainer.own_gradient.mean]
    trainer.step([group(1, external=False)])
    moved = [torch.equal(a, b) for a, b in zip(before, trainer.own_gradient.mean, strict=True)]
    assert not any(moved)


def test_own_gradients_are_weighted_by_rows_and_decay(folder: Path) -> None:
    parameter = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    mean = OwnGradient([parameter])
    for gradient, rows in (([10.0, 0.0], 1), ([0.0, 0.1], 3)):
        parameter.grad = torch.tensor(gradient)
        mean.note(rows)
    measured: list[torch.Tensor] = []

    def measure(rows: Sequence[TrainingRow]) -> list[float]:
        measured.append(parameter.detach().clone())
        return [0.0] * len(rows)

    mean.agreeing(training_rows([group(1, external=True)]), measure)
    moved = (measured[0] - measured[1]).tolist()
    assert moved[0] / moved[1] == pytest.approx(0.9 / 3, rel=0.01), "a step ago, and a third of the rows"


def test_measuring_agreement_restores_weights_and_gradients(folder: Path) -> None:
    trainer = make_trainer(folder)
    before = weights(trainer)
    for parameter in trainer.parameters:
        parameter.grad = torch.ones_like(parameter)
    mean = OwnGradient(trainer.parameters)
    mean.note(1)
    measured: list[list[torch.Tensor]] = []

    def measure(rows: Sequence[TrainingRow]) -> list[float]:
        measured.append(weights(trainer))
        return [0.0] * len(rows)

    rows = training_rows([group(1, external=True)])
    assert mean.agreeing(rows, measure) == [], "what does not change does not agree"
    assert all(torch.equal(a, b) for a, b in zip(before, measured[0], strict=True))
    moved = torch.cat([(a - b).flatten() for a, b in zip(measured[1], before, strict=True)])
    length = torch.cat([each.flatten() for each in before]).norm()
    assert float(moved.norm() / length) == pytest.approx(1e-4, rel=0.05)
    assert bool((moved < 0.0).any()), "against the gradient"
    assert not bool((moved > 0.0).any())
    assert all(torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))


def test_a_gradient_that_is_not_finite_does_not_enter_the_mean(folder: Path) -> None:
    trainer = make_trainer(folder)
    mean = OwnGradient(trainer.parameters)
    for value in (float("nan"), float("inf"), 0.0):
        for parameter in trainer.parameters:
            parameter.grad = torch.full_like(parameter, value)
        mean.note(1)
    assert not mean.is_known
