"""Supervised steps on demonstrations: gradients, undone updates, and a family that is learnt from others."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from support.trainers import SettingsChanges, make_trainer

from sapo_client.learner.baseline import MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.demonstrations import DemonstrationText
from sapo_client.learner.losses.cross_entropy import TokenWeighting
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.supervised import WARMUP_STEPS, default_demonstration_rate
from sapo_client.learner.trainer import Trainer
from sapo_client.learner.wire import Message

FAMILY = 4
FAILING = Baselines({FAMILY: FamilyBaseline(0.0, MIN_SAMPLES)})
TEXTS = [
    DemonstrationText((30, 31, 32), tuple(range(40 + i, 44 + 3 * i)), FAMILY, b"ann", b"%d" % i)
    for i in range(4)
]
"""Completions of 4, 7, 10 and 13 tokens. They have one prompt, so only one of them is kept at a time."""

OWN = TrainingGroup((30, 31), ((40, 41), (42,)), (1.0, 0.0), external=False, behaviour=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model")


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.parameters]


def unlike(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """Return the largest difference of a weight."""
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def distinct(texts: Sequence[DemonstrationText]) -> list[DemonstrationText]:
    """Return the texts with a prompt each."""
    return [replace(text, prompt=(*text.prompt, 50 + index)) for index, text in enumerate(texts)]


def literal_gradient(
    trainer: Trainer, texts: Sequence[DemonstrationText], by_completion: bool
) -> torch.Tensor:
    """Return the gradient of the mean negative log-likelihood at temperature 1 as one vector."""
    model = trainer.policy.model
    model.zero_grad()
    for text in texts:
        logprobs = model(torch.tensor([[*text.prompt, *text.completion]])).logits[0].log_softmax(-1)
        positions = torch.arange(len(text.prompt) - 1, len(text.prompt) + len(text.completion) - 1)
        loss = -logprobs[positions, torch.tensor(text.completion)]
        size = len(texts) if by_completion else sum(len(each.completion) for each in texts)
        torch.autograd.backward((loss.mean() if by_completion else loss.sum()) / size)
    gradients = [gradient_of(parameter).clone().flatten() for parameter in trainer.parameters]
    model.zero_grad()
    return torch.cat(gradients)


def moments(trainer: Trainer) -> torch.Tensor:
    """Return the gradient of the first supervised step, from the optimizer's first moments."""
    state = trainer.supervised.optimizer.state
    return torch.cat([state[parameter]["exp_avg"].flatten() for parameter in trainer.parameters]) / 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"length_normalised": True},
        {"temperature": 3.0},
        {"micro_batch_tokens": 8},
        {"gradient_checkpointing": True},
    ],
)
def test_the_gradient_is_that_of_the_likelihood(folder: Path, changes: SettingsChanges) -> None:
    """Also in small micro-batches; the temperature of sampling does not matter."""
    trainer, texts = make_trainer(folder, **changes), distinct(TEXTS)
    trainer.baselines = FAILING
    expected = literal_gradient(trainer, texts, changes.get("length_normalised", False))
    trainer.step([], demonstrations=texts)
    assert torch.allclose(moments(trainer), expected / max(1.0, float(expected.norm())), atol=1e-5)


def test_the_report_tells_what_was_trained(folder: Path) -> None:
    trainer, texts = make_trainer(folder, demonstration_rate=1e-2), distinct(TEXTS)
    trainer.baselines = FAILING
    other = replace(texts[0], family=1)
    report = trainer.step([], demonstrations=[*texts, replace(other, prompt=(60,))])
    assert (report.demonstrations, report.demonstrations_held) == (4, 5)
    assert report.demonstration_families == {str(FAMILY): 4}
    assert 3.0 < report.demonstration_loss < 7.0, "a random policy over some 100 tokens"
    assert (report.tokens, report.loss, report.rolled_back) == (0, 0.0, False)
    losses = [trainer.step([]).demonstration_loss for _ in range(40)]
    assert losses[-1] < 0.9 * report.demonstration_loss, "they are trained again without being sent again"


@pytest.mark.parametrize("weighting", ["luffy", "chord"])
def test_the_loss_in_the_report_is_unweighted(folder: Path, weighting: TokenWeighting) -> None:
    plain = make_trainer(folder)
    other = make_trainer(folder, demonstration_weighting=weighting)
    for trainer in (plain, other):
        trainer.baselines = FAILING
    reports = [trainer.step([], demonstrations=distinct(TEXTS)) for trainer in (plain, other)]
    assert reports[0].demonstration_loss == reports[1].demonstration_loss
    assert not torch.allclose(moments(plain), moments(other))


def test_few_texts_make_a_small_step(folder: Path) -> None:
    """AdamW's first step moves every weight that has a gradient by the learning rate, after a warm-up."""
    trainer = make_trainer(folder, demonstration_rate=0.064)
    trainer.baselines = FAILING
    before = weights(trainer)
    trainer.step([], demonstrations=distinct(TEXTS))
    assert unlike(before, weights(trainer)) == pytest.approx(4 * 0.001 / WARMUP_STEPS, rel=1e-3)


def test_without_demonstrations_nothing_is_different(folder: Path) -> None:
    usual, off = make_trainer(folder), make_trainer(folder, demonstrations_per_step=0)
    reports = [
        replace(trainer.step([OWN], demonstrations=texts), seconds=0.0)
        for trainer, texts in ((usual, []), (off, TEXTS))
    ]
    assert reports[0] == reports[1]
    assert unlike(weights(usual), weights(off)) == 0.0
    assert not usual.supervised.optimizer.state


def test_groups_are_trained_before_demonstrations_and_alike(folder: Path) -> None:
    """The first moments of the groups' optimizer contain nothing of the demonstrations' gradient."""
    alone, both = make_trainer(folder), make_trainer(folder)
    for trainer, texts in ((alone, []), (both, distinct(TEXTS))):
        trainer.baselines = FAILING
        trainer.step([OWN], demonstrations=texts)
    pairs = zip(alone.optimizer.state.values(), both.optimizer.state.values(), strict=True)
    assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in pairs)
    assert unlike(weights(alone), weights(both)) > 0.0


def test_texts_of_a_solved_family_are_not_taken_and_of_an_unmeasured_one_not_trained(folder: Path) -> None:
    trainer = make_trainer(folder)
    trainer.baselines = Baselines({0: FamilyBaseline(0.7, MIN_SAMPLES), 2: FamilyBaseline(0.1, MIN_SAMPLES)})
    texts = [
        replace(text, family=family, prompt=(family, *text.prompt))
        for family in range(3)
        for text in distinct(TEXTS)
    ]
    report = trainer.step([], demonstrations=texts)
    assert list(trainer.demonstrations) == texts[len(TEXTS) :]
    assert report.demonstration_families == {"2": len(TEXTS)}


def test_an_update_that_is_not_finite_is_undone(tmp_path: Path) -> None:
    """Only the demonstration is so long that it meets the position whose embedding is not a number."""
    trainer = make_trainer(make_policy_folder(tmp_path / "gpt2", "gpt2"))
    trainer.baselines = FAILING
    with torch.no_grad():
        trainer.policy.model.get_parameter("transformer.wpe.weight")[60] = math.nan
    before, moved = weights(trainer), [replace(text, completion=(40,) * 70) for text in distinct(TEXTS)]
    report = trainer.step([], demonstrations=moved)
    assert (report.rolled_back, report.rollbacks, report.demonstration_loss) == (True, 1, 0.0)
    assert not trainer.supervised.optimizer.state
    assert all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, weights(trainer), strict=True)
    )
    report = trainer.step([OWN], demonstrations=moved)
    assert (report.rolled_back, report.rollbacks) == (True, 2)
    assert report.gradient_norm > 0, "the groups' update stands"


def test_the_rate_follows_the_size() -> None:
    rates = [default_demonstration_rate([torch.empty(count, device="meta")]) for count in (10**6, 10**9)]
    assert rates == [3e-4, 1e-5]


QUESTIONS = {"12 + 7 =\n": b"19", "Monday +3\n": b"Thursday", "6/8\n": b"3/4", "10 base 2 to 10\n": b"2"}


def answers_right(service: Service, demonstrations: list[Message], steps: int) -> list[Message]:
    """Train on own samples, of which only the exact answer is right; return the reports."""
    reports = []
    for step in range(steps):
        handles = [10 * step + index for index in range(len(QUESTIONS))]
        sampled = service.generate(list(QUESTIONS), 8, handles)["completions"]
        groups = [
            {
                "prompt": prompt,
                "completions": completions,
                "rewards": [float(text == QUESTIONS[prompt]) for text in completions],
                "external": False,
                "handle": handle,
                "family": FAMILY,
            }
            for prompt, completions, handle in zip(QUESTIONS, sampled, handles, strict=True)
        ]
        reports.append(service.train(groups=groups, demonstrations=demonstrations if step == 0 else []))
    return reports


def shown_by(author: bytes) -> list[Message]:
    return [
        {"prompt": prompt, "completion": answer, "family": FAMILY, "author": author, "answer": answer}
        for prompt, answer in QUESTIONS.items()
    ]


def test_a_policy_that_is_never_right_learns_from_others_and_then_forgets_their_texts(folder: Path) -> None:
    settings = LearnerSettings(
        model=str(folder),
        directory=folder.parent / "run",
        max_new_tokens=10,
        checkpoint_share=0.0,
        demonstrations_per_step=6,
        demonstration_rate=3e-3,
    )
    alone = answers_right(Service(settings), [], 20)
    assert [report["local_reward"] for report in alone] == [0.0] * 20
    reports = answers_right(Service(settings), [*shown_by(b"ann"), *shown_by(b"bob")], 120)
    assert reports[0]["local_reward"] == 0.0
    assert [report["demonstrations"] for report in reports[:4]] == [6] * 4
    assert reports[0]["demonstration_families"] == {str(FAMILY): 6}
    assert reports[-1]["local_reward"] > 0.9
    assert (reports[-1]["demonstrations"], reports[-1]["demonstrations_held"]) == (0, 0)


def test_what_cannot_be_sampled_whole_is_no_demonstration(folder: Path) -> None:
    service = Service(LearnerSettings(str(folder), folder.parent / "run", max_new_tokens=8))
    (shown, *_) = shown_by(b"ann")
    end = service._policy.tokenizer.eos_token.encode()
    texts = [
        shown | {"completion": text, "author": text} for text in (b"7" * 8, b"\xff7", b"7" * 7, b"", end)
    ]
    service.train(groups=[], demonstrations=texts)
    policy = service._policy
    held = {text.author: text for text in service._trainer.demonstrations}
    expected = policy.encode_completion("7777777", 8)
    assert held.keys() - {end} == {b"7" * 7, b""}
    assert held[b"7" * 7] == DemonstrationText(
        policy.encode_prompt(shown["prompt"]), expected, FAMILY, b"7" * 7, shown["answer"]
    )
    assert expected[-1] == policy.end
