"""Memory of a training step: the plan, behaviour with too little memory, and settings that reduce it."""

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from support.little_memory import LONG, SHOWN
from support.policies import make_policy_folder
from support.trainers import make_trainer

from sapo_client.errors import SapoError
from sapo_client.learner.batch import TrainingGroup, TrainingRow, training_rows
from sapo_client.learner.memory import (
    ACTIVATION_MARGIN,
    RowCost,
    available_bytes,
    halved,
    is_out_of_memory,
    plan_memory,
    saved_tensor_bytes,
)
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer

KIB = 1024


@pytest.fixture(params=["qwen2", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model", request.param)


def group(rows: int, length: int) -> TrainingGroup:
    completions = tuple(tuple(30 + (i * 7 + j) % 60 for j in range(length)) for i in range(rows))
    return TrainingGroup((30, 31, 32), completions, (1.0,) + (0.0,) * (rows - 1), True, None)


def gradients(trainer: Trainer, groups: list[TrainingGroup]) -> torch.Tensor:
    """Return the gradient of a step as one vector, taken from the optimizer's first moments."""
    trainer.step(groups)
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.parameters]
    return torch.cat([moment.flatten() for moment in moments])


@pytest.mark.parametrize("width", [8, 60, 90])
def test_the_planned_cost_covers_what_autograd_saves(folder: Path, width: int) -> None:
    trainer = make_trainer(folder)
    rows = training_rows([group(3, width - 3)])
    parameters = list(trainer.policy.model.parameters())
    saved = saved_tensor_bytes(lambda: trainer._logprobs(trainer.policy.model, rows), parameters)
    planned = trainer._watchdog._plan.batch_bytes + 3 * trainer._watchdog._plan.row.of(width)
    assert saved <= planned <= 3 * saved


def test_what_is_measured_is_freed() -> None:
    """Of three short rows of a model of half a billion parameters, 2.2 GiB of a card were not."""
    layer, kept = torch.nn.Linear(8, 8), []

    def compute() -> torch.Tensor:
        middle = torch.tanh(layer(torch.ones(2, 8)))
        kept.append(weakref.ref(middle))
        return layer(middle)  # type: ignore[no-any-return]

    assert saved_tensor_bytes(compute, list(layer.parameters())) > 0
    gc.collect()
    assert [each() for each in kept] == [None]


def test_a_small_budget_cuts_the_batch_and_changes_no_gradient(folder: Path) -> None:
    groups = [group(12, 40)]
    roomy = make_trainer(folder)
    # gradients, and the moments of two optimizers
    fixed = sum(parameter.numel() for parameter in roomy.parameters) * 20 + roomy._watchdog._plan.batch_bytes
    row = roomy._watchdog._plan.row.of(43)
    tight = make_trainer(folder, memory_bytes=int((fixed + 2.5 * row) / 0.8))
    rows = training_rows(groups)
    assert roomy._watchdog.tokens(rows) == 8192
    assert tight._watchdog.tokens(rows) == 2 * 43
    assert torch.allclose(gradients(tight, groups), gradients(roomy, groups), atol=1e-6)


def test_training_that_does_not_fit_is_refused_at_the_start(folder: Path) -> None:
    with pytest.raises(SapoError, match="GiB beside the model") as caught:
        make_trainer(folder, memory_bytes=100 * KIB)
    assert "lora_rank" in caught.value.hint


def test_halving_ends_at_one_row() -> None:
    assert [halved(8192, 40), halved(100, 60), halved(61, 60)] == [4096, 60, 60]
    with pytest.raises(SapoError, match="one row of 60 tokens"):
        halved(60, 60)


def test_tokens_within_a_budget() -> None:
    cost = RowCost(linear=10.0, quadratic=1.0)
    assert cost.of(10) == 200.0
    assert (cost.tokens_within(650.0, 10), cost.tokens_within(1.0, 10)) == (30, 10)


def test_a_plan_counts_gradients_moments_and_snapshot() -> None:
    def saved(width: int) -> float:
        return 1000.0 * width

    plan = plan_memory(saved, trained=1000, available=1e6, snapshot=False)
    assert plan.budget_bytes == pytest.approx(0.8e6 - 12_000)
    assert astuple(plan.row) == pytest.approx((1500.0, 0.0))
    budgets = [
        plan_memory(saved, trained=1000, available=1e6, snapshot=snapshot, optimizers=optimizers).budget_bytes
        for snapshot, optimizers in ((True, 1), (False, 2), (True, 2))
    ]
    assert budgets == pytest.approx([0.8e6 - 24_000, 0.8e6 - 20_000, 0.8e6 - 32_000])


def test_a_failed_allocation_is_distinguished_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2) @ torch.zeros(3)
    assert not is_out_of_memory(caught.value)
    assert available_bytes(torch.device("cpu")) > 0


def with_little_memory(folder: Path, task: str) -> dict[str, Any]:
    """Run a task in a process of its own: the heap of this one holds what was freed, which no limit takes."""
    result = folder.with_name("result")
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "support.little_memory", str(folder), str(result), task]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    found: dict[str, Any] = torch.load(result)
    return found


def test_a_step_that_runs_out_of_memory_continues_in_smaller_micro_batches(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    limited = with_little_memory(folder, "step")
    assert limited["halvings"] > 0
    assert not limited["rolled_back"]
    expected = gradients(make_trainer(folder, micro_batch_tokens=2**20), [LONG])
    assert torch.allclose(limited["gradient"], expected, atol=1e-6)


def test_measuring_text_of_others_that_runs_out_of_memory_continues_as_well(tmp_path: Path) -> None:
    """It is no part of a step's gradient; that it ended the learner only many of others' texts would show."""
    folder = make_policy_folder(tmp_path / "model")
    limited = with_little_memory(folder, "values")
    assert limited["halvings"] > 0
    roomy = make_trainer(folder, micro_batch_tokens=2**20)
    expected = [value for value in roomy.supervised.values(SHOWN) if value is not None]
    assert roomy._gradients.halvings == 0
    likelihoods, dependences = zip(*expected, strict=True)
    assert [value[0] for value in limited["values"]] == pytest.approx(likelihoods)
    for (_, found), wanted in zip(limited["values"], dependences, strict=True):
        assert found == pytest.approx(wanted, abs=1e-2)


def test_gradient_checkpointing_saves_memory_and_changes_no_gradient(folder: Path) -> None:
    plain, lean = make_trainer(folder), make_trainer(folder, gradient_checkpointing=True)
    parameters = list(lean.policy.model.parameters())
    rows = training_rows([group(4, 60)])

    def saved(rows: list[TrainingRow]) -> int:
        return saved_tensor_bytes(lambda: lean._logprobs(lean.policy.model, rows), parameters)

    in_full, row_in_full = saved(rows), saved(rows[:1])
    with lean._watchdog.training():
        assert saved(rows) < 0.5 * in_full
    assert lean._watchdog._plan.row.of(rows[0].width) < ACTIVATION_MARGIN * row_in_full
    assert torch.allclose(gradients(lean, [group(4, 60)]), gradients(plain, [group(4, 60)]), atol=1e-6)
    assert not lean.policy.model.training, "sampling uses the key-value cache"


def test_bfloat16_changes_the_gradient_a_little(folder: Path) -> None:
    exact, coarse = make_trainer(folder), make_trainer(folder, bfloat16=True)
    a, b = (gradients(trainer, [group(6, 30)]) for trainer in (exact, coarse))
    assert not torch.equal(a, b)
    assert torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.99


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_plan_holds_on_a_gpu(tmp_path: Path) -> None:
    """A step allocates less than planned, in bfloat16 by default."""
    folder = make_policy_folder(tmp_path / "model")
    settings = LearnerSettings(str(folder), tmp_path, learning_rate=1e-3, micro_batch_tokens=2**20)
    trainer = Trainer(load_policy(str(folder), "cuda"), settings)
    trainer.step([group(2, 4)])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    report = trainer.step([group(32, 200)])
    assert report.halvings == 0
    assert torch.cuda.max_memory_allocated() - before <= 32 * trainer._watchdog._plan.row.of(203)
