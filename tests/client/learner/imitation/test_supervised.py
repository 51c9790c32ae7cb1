"""Supervised steps on demonstrations: gradients, undone updates, and a family that is learnt from others."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from support.trainers import SettingsChanges, make_trainer

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.baseline import MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup, training_rows
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.imitation.supervised import WARMUP_STEPS, Draw, SupervisedSchedule
from sapo_client.learner.losses.cross_entropy import TokenWeighting
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer
from sapo_client.learner.wire import Message

FAMILY = 4
FAILING = Baselines({FAMILY: FamilyBaseline(0.0, MIN_SAMPLES)})
TEXTS = [
    DemonstrationText((30, 31, 32), tuple(range(40 + i, 44 + 3 * i)), FAMILY, b"ann", b"%d" % i)
    for i in range(4)
]
"""Completions of 4, 6, 8 and 10 tokens."""

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


def test_the_report_lists_trained_groups(folder: Path) -> None:
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


def test_the_learning_rate_is_proportional_to_the_number_of_texts(folder: Path) -> None:
    """AdamW's first step moves every weight that has a gradient by the learning rate, after a warm-up."""
    trainer = make_trainer(folder, demonstration_rate=0.064)
    trainer.baselines = FAILING
    before = weights(trainer)
    trainer.step([], demonstrations=distinct(TEXTS))
    assert unlike(before, weights(trainer)) == pytest.approx(4 * 0.001 / WARMUP_STEPS, rel=1e-3)


def test_without_demonstrations_a_step_is_unchanged(folder: Path) -> None:
    usual, off = make_trainer(folder), make_trainer(folder, demonstrations_per_step=0)
    reports = [
        replace(trainer.step([OWN], demonstrations=texts), seconds=0.0, step_values=())
        for trainer, texts in ((usual, []), (off, TEXTS))
    ]
    assert reports[0] == reports[1]
    assert unlike(weights(usual), weights(off)) == 0.0
    assert not usual.supervised.optimizer.state


def test_demonstrations_do_not_change_the_update_on_groups(folder: Path) -> None:
    """The first moments of the groups' optimizer contain nothing of the demonstrations' gradient."""
    alone, both = make_trainer(folder), make_trainer(folder)
    for trainer, texts in ((alone, []), (both, distinct(TEXTS))):
        trainer.baselines = FAILING
        trainer.step([OWN], demonstrations=texts)
    pairs = zip(alone.optimizer.state.values(), both.optimizer.state.values(), strict=True)
    assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in pairs)
    assert unlike(weights(alone), weights(both)) > 0.0


def test_texts_of_solved_families_are_not_kept_and_of_unmeasured_ones_not_trained(folder: Path) -> None:
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


def test_the_schedule_follows_the_size_where_the_settings_leave_it_open() -> None:
    small, large = [[torch.empty(count, device="meta")] for count in (10**6, 10**9)]
    open_ = LearnerSettings("bundled", Path())
    closed = replace(open_, demonstration_steps=3, demonstration_rate=0.5, demonstration_averaging=0.0)
    found = [
        SupervisedSchedule.of(replace(open_, shows_steps=shows_steps), each)
        for each in (small, large)
        for shows_steps in (False, True)
    ]
    assert found == [
        SupervisedSchedule(steps=1, rate=3e-4, averaging=0.0),
        SupervisedSchedule(steps=20, rate=2e-3, averaging=0.98),
        SupervisedSchedule(steps=1, rate=1e-5, averaging=0.0),
        SupervisedSchedule(steps=1, rate=1e-5, averaging=0.0),
    ]
    assert SupervisedSchedule.of(closed, small) == SupervisedSchedule(3, 0.5, 0.0)


def test_few_texts_are_trained_once_per_round() -> None:
    schedule = SupervisedSchedule(steps=12, rate=2e-3, averaging=0.98)
    held = (0, 1, 64, 65, 700, 768, 4000)
    assert [schedule.steps_for(each, 64) for each in held] == [0, 1, 1, 2, 11, 12, 12]
    assert schedule.own_answers(64) == 1536
    assert replace(schedule, steps=1).own_answers(64) == 400


def averaged(folder: Path, decay: float, steps: int = 3) -> Trainer:
    trainer = make_trainer(
        folder, demonstration_rate=1e-2, demonstration_steps=steps, demonstration_averaging=decay
    )
    trainer.baselines = FAILING
    return trainer


def has_student(trainer: Trainer) -> bool:
    return trainer.supervised.weights.student is not None


def test_the_policy_is_the_average_of_the_weights_after_each_step(folder: Path) -> None:
    """The student's path does not depend on the averaging, so one trainer step by step gives it."""
    single, trainer, texts = averaged(folder, 0.0, steps=1), averaged(folder, 0.75), distinct(TEXTS)
    expected = weights(single)
    for _ in range(3):
        single.supervised.step(texts)
        expected = [0.75 * mean + 0.25 * now for mean, now in zip(expected, weights(single), strict=True)]
    update = trainer.supervised.steps([(texts, ())] * 3)
    assert trainer.supervised.weights.student is not None
    assert unlike(trainer.supervised.weights.student, weights(single)) < 1e-6
    assert unlike(weights(trainer), expected) < 1e-6
    assert update.texts == 3 * len(texts)
    assert update.families == {FAMILY: 3 * len(texts)}


def test_the_student_continues_and_moves_with_the_policy(folder: Path) -> None:
    trainer, texts = averaged(folder, 0.75), distinct(TEXTS)
    trainer.step([], demonstrations=texts)
    assert trainer.supervised.weights.student is not None
    student = [weight.clone() for weight in trainer.supervised.weights.student]
    policy = weights(trainer)
    trainer.baselines = Baselines({FAMILY: FamilyBaseline(0.0, MIN_SAMPLES)})
    with trainer.supervised.weights.training_policy():
        trainer._update(training_rows([OWN], all_groups=False, baselines=trainer.baselines), [OWN])
    moved = trainer.supervised.weights.student
    assert moved is not None
    by_policy = [now - before for now, before in zip(weights(trainer), policy, strict=True)]
    by_student = [now - before for now, before in zip(moved, student, strict=True)]
    assert max(float(each.abs().max()) for each in by_policy) > 1e-4
    assert unlike(by_policy, by_student) < 1e-6


def test_the_student_is_dropped_when_every_family_is_solved(folder: Path) -> None:
    trainer = averaged(folder, 0.75)
    trainer.step([], demonstrations=distinct(TEXTS))
    assert has_student(trainer)
    trainer.baselines = Baselines({FAMILY: FamilyBaseline(0.7, MIN_SAMPLES)})
    before = weights(trainer)
    assert trainer.step([]).demonstrations == 0
    assert not has_student(trainer)
    assert unlike(before, weights(trainer)) == 0.0


def test_after_running_out_of_memory_the_policy_is_the_average_so_far(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, texts = averaged(folder, 0.75), distinct(TEXTS)

    def draws() -> Iterator[Draw]:
        yield texts, ()
        raise SapoError("no memory", hint="buy some", exit_code=ExitCode.DATA)

    other = averaged(folder, 0.75)
    other.supervised.steps([(texts, ())])
    with pytest.raises(SapoError):
        trainer.supervised.steps(draws())
    assert unlike(weights(trainer), weights(other)) == 0.0


def test_a_solved_family_trains_at_most_its_rehearsal_share(folder: Path) -> None:
    trainer = make_trainer(folder)
    solved = FamilyBaseline(0.9, MIN_SAMPLES)
    trainer.baselines = Baselines({FAMILY: FamilyBaseline(0.0, MIN_SAMPLES), 1: solved})
    assert trainer.step([], demonstrations=distinct(TEXTS)).demonstrations == len(TEXTS)
    right = replace(OWN, family=1, rewards=(1.0, 1.0))
    assert trainer.step([right]).demonstrations == 2
    assert len(trainer.own_successes) == 2
    trainer.baselines = FAILING
    assert trainer.step([]).demonstrations == len(TEXTS)


def test_the_value_of_steps_is_their_likelihood_times_that_of_the_answer(folder: Path) -> None:
    """Computed text by text by the model itself; small micro-batches change the order, not the values."""
    trainer = make_trainer(folder, micro_batch_tokens=16)
    texts = [replace(text, steps=steps) for text, steps in zip(TEXTS, (0, 3, 7, 10), strict=True)]
    expected: list[float | None] = []
    for text in texts:
        row = torch.tensor([[*text.prompt, *text.completion]])
        logprobs = trainer.policy.model(row).logits[0].detach().log_softmax(-1)
        first = len(text.prompt) - 1
        found = [float(logprobs[first + n, token]) for n, token in enumerate(text.completion)]
        steps, answer = found[: text.steps], found[text.steps :]
        expected.append(math.exp(sum(steps) / len(steps) + sum(answer)) if steps and answer else None)
    values = [value and value[0] for value in trainer.supervised.values(texts)]
    assert [value is None for value in values] == [True, False, False, True]
    assert values[1:3] == pytest.approx(expected[1:3], rel=1e-3)


def test_dependence_compares_with_the_next_text_of_the_family(folder: Path) -> None:
    """Computed by the model itself: steps, and their second half, in their place and in another text's."""
    trainer = make_trainer(folder, micro_batch_tokens=16)
    one, two, alone = (
        replace(text, prompt=(30, 31 + family + place), steps=4, family=family)
        for place, (text, family) in enumerate(zip(TEXTS[1:], (1, 1, 2), strict=True))
    )

    def nats(context: Sequence[int], tokens: Sequence[int]) -> float:
        logprobs = (
            trainer.policy.model(torch.tensor([[*context, *tokens]])).logits[0].detach().log_softmax(-1)
        )
        return sum(float(logprobs[len(context) - 1 + n, token]) for n, token in enumerate(tokens))

    def expected(text: DemonstrationText, other: DemonstrationText) -> list[float]:
        return [
            nats((*text.prompt, *text.completion[:first]), text.completion[first:last])
            - nats((*other.prompt, *other.completion[:first]), text.completion[first:last])
            for first, last in ((0, 4), (2, 4))
        ]

    same_prompt = replace(one, completion=two.completion)
    values = trainer.supervised.values([one, same_prompt, two, alone])
    found = [value[1] for value in values if value is not None]
    assert found[0] == pytest.approx(expected(one, two), rel=1e-3, abs=1e-4)
    assert found[2] == pytest.approx(expected(two, one), rel=1e-3, abs=1e-4)
    assert found[3] == (None, None), "alone in its family"
    (single, _) = trainer.supervised.values([replace(one, steps=1), two])
    assert single is not None
    assert [nats is None for nats in single[1]] == [False, True], "one token has no second half"


def test_texts_of_misleading_authors_are_removed_and_only_evaluated(folder: Path) -> None:
    trainer, texts = make_trainer(folder), distinct(TEXTS)
    trainer.baselines = FAILING
    others = [replace(text, author=b"bob", steps=2) for text in texts]
    trainer.step([], demonstrations=[*texts, *others])
    news = [replace(text, completion=(*text.completion, 41)) for text in others[:2]]
    report = trainer.step([], demonstrations=news, forgotten={(b"bob", FAMILY), (b"ann", FAMILY + 1)})
    assert list(trainer.demonstrations) == texts
    assert [value is not None for value in report.step_values] == [True, True]


def test_judged_texts_are_evaluated_and_neither_trained_nor_stored(folder: Path) -> None:
    plain, judging, texts = make_trainer(folder), make_trainer(folder), distinct(TEXTS)
    for trainer in (plain, judging):
        trainer.baselines = FAILING
    others = [replace(text, author=b"bob", steps=2, completion=(*text.completion, 41)) for text in texts]
    expected = [*judging.supervised.values([*texts, *others])]
    reports = [plain.step([], demonstrations=texts), judging.step([], demonstrations=texts, judged=others)]
    assert reports[1].step_values == expected
    assert [value is None for value in reports[1].step_values] == [True] * 4 + [False] * 4
    assert unlike(weights(plain), weights(judging)) == 0.0
    assert list(judging.demonstrations) == texts


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
        demonstration_steps=1,
        demonstration_averaging=0.0,
    )
    alone = answers_right(Service(settings), [], 20)
    assert [report["local_reward"] for report in alone] == [0.0] * 20
    reports = answers_right(Service(settings), [*shown_by(b"ann"), *shown_by(b"bob")], 120)
    assert reports[0]["local_reward"] == 0.0
    assert [report["demonstrations"] for report in reports[:4]] == [6] * 4
    assert reports[0]["demonstration_families"] == {str(FAMILY): 6}
    assert reports[-1]["local_reward"] > 0.9
    assert (reports[-1]["demonstrations"], reports[-1]["demonstrations_held"]) == (0, 0)


def test_values_are_reported_for_all_texts_in_their_order(folder: Path) -> None:
    service = Service(LearnerSettings(str(folder), folder.parent / "run", max_new_tokens=60))
    (shown, *_) = shown_by(b"ann")
    texts = [
        b"7+2:9<answer>9</answer>",
        b"\xff7",
        b"<answer>9</answer>",
        b"9",
        b"2+7:9,1:1<answer>9</answer>",
    ]
    messages = [shown | {"completion": text} for text in texts]
    report = service.train(groups=[], demonstrations=messages, judged=messages[1:])
    first, *others, last, bad, bare, plain, judged = report["step_values"]
    assert 0.0 < first[0] < 1.0
    assert 0.0 < last[0] < 1.0
    assert first[1] == last[1] == (None, None), "all have the same prompt"
    assert others == [bad, bare, plain] == [None, None, None]
    assert judged[0] == pytest.approx(last[0])


def test_a_text_that_cannot_be_sampled_in_full_is_not_kept_as_demonstration(folder: Path) -> None:
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
