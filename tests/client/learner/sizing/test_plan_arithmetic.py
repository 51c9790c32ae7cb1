"""Parts of the memory plan as sums that can be told beforehand."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.model_folders import save_model
from support.trainers import make_trainer
from transformers import LlamaConfig

from sapo_client.errors import SapoError
from sapo_client.learner.losses.accumulate import GradientAccumulator
from sapo_client.learner.memory import GIB, fit_row_cost
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing import fit
from sapo_client.learner.sizing.estimate import KERNEL_BYTES, Workload, estimate_memory

LOAD = Workload(groups=2, completions=4, prompt_tokens=16, new_tokens=8, sampled_groups=2)


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3}
    folder = save_model(tmp_path / "model", LlamaConfig, **sizes)
    return LearnerSettings(str(folder), tmp_path / "run", device="cpu", demonstrations_per_step=0)


def test_a_parabola_is_fitted_exactly() -> None:
    row, batch = fit_row_cost(lambda width: 5.0 * width + 3.0 * width**2 + 700.0)
    assert (row.linear, row.quadratic, batch) == pytest.approx((5.0, 3.0, 700.0))


def test_a_sampler_of_its_own_copies_what_is_trained(settings: LearnerSettings) -> None:
    adapted = replace(settings, lora_rank=4)
    for one in (settings, adapted):
        plain = estimate_memory(one, LOAD, "cpu")
        ahead = estimate_memory(replace(one, overlap=True), LOAD, "cpu")
        by_vllm = estimate_memory(replace(one, overlap=True, vllm=True), LOAD, "cpu")
        assert ahead.weights - plain.weights == 4 * plain.trained
        assert by_vllm.weights == plain.weights


def test_the_mean_of_own_gradients_is_as_large_as_a_gradient(settings: LearnerSettings) -> None:
    plain = estimate_memory(settings, LOAD, "cpu")
    agreeing = estimate_memory(replace(settings, agreement=True), LOAD, "cpu")
    assert agreeing.gradients - plain.gradients == 4 * plain.trained


def test_kernels_of_16_bits_are_compiled_for_the_own_sampler_alone(settings: LearnerSettings) -> None:
    half = replace(settings, lora_rank=4, base="bfloat16")
    of_all = [
        estimate_memory(each, LOAD, "cpu").libraries
        for each in (half, replace(half, vllm=True), replace(half, base="float32"))
    ]
    assert [of_all[0] - each for each in of_all[1:]] == [KERNEL_BYTES] * 2


def test_a_learner_that_does_not_fit_says_what_it_takes(
    settings: LearnerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Workload(1, 1, 64, settings.max_new_tokens, 1)
    plan = estimate_memory(settings, load, "cpu")
    fixed = plan.weights + plan.moments + plan.gradients
    monkeypatch.setattr(fit, "available_bytes", lambda _: fixed)
    fit.require_weights_fit(settings)
    monkeypatch.setattr(fit, "available_bytes", lambda _: fixed - 1)
    with pytest.raises(SapoError) as caught:
        fit.require_weights_fit(settings)
    taken, free = fixed / GIB, (fixed - 1) / GIB
    assert caught.value.text == f"{settings.model} takes {taken:.1f} GiB to train, and {free:.1f} are free"


def test_recomputed_activations_hold_every_layer_s_input(settings: LearnerSettings) -> None:
    """Beside all that one layer keeps, which is more than its input."""
    trainer = make_trainer(Path(settings.model), gradient_checkpointing=True)
    assert isinstance(trainer._gradients, GradientAccumulator)
    row = trainer._watchdog._plan.row
    inputs = 3 * 64 * 4
    assert inputs < row.of(32) / 32 < 40 * inputs


def test_a_single_process_shares_its_machine_with_no_rank() -> None:
    assert RankGroup(0, 1, leader=0, on_host=1, mesh=None) == ALONE
