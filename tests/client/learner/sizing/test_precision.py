"""Data types by device, 4-bit bases, 8-bit moments, the float16 loss scale and learning rates."""

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.policies import make_policy_folder
from support.trainers import make_trainer

from sapo_client.errors import SapoError
from sapo_client.learner.adapters import adapter_rank, save_adapters
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.checkpoint import CheckpointStore, LearnerCounters
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.losses.accumulate import GradientAccumulator
from sapo_client.learner.policy import load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.estimate import Workload, estimate_memory
from sapo_client.learner.sizing.loss_scale import FIRST_SCALE, GROWTH_STEPS, LossScale
from sapo_client.learner.sizing.optimizers import OptimizerName
from sapo_client.learner.sizing.precision import (
    BaseName,
    base_type,
    engine_type,
    half_type,
    product_type,
    require_equal_types,
    require_float32_without_adapters,
    type_names,
)
from sapo_client.learner.trainer import Trainer, default_learning_rate
from sapo_client.learner.vllm.adapter_push import engine_options, engine_rank

CPU = torch.device("cpu")
needs_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GROUP = TrainingGroup((30, 31, 32), ((40, 41), (50, 51, 52)), (1.0, 0.0), True, None)
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed (sapo-swarm[quantised])"
)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((8, 9), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_bfloat16_from_ampere_on(capability: tuple[int, int], expected: torch.dtype) -> None:
    assert half_type(capability) is expected


@pytest.fixture(params=[True, False], ids=["with bfloat16", "without bfloat16"])
def multiplies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the processor multiplies bfloat16."""
    has_bfloat16: bool = request.param
    monkeypatch.setattr("sapo_client.learner.sizing.precision.has_bfloat16", lambda: has_bfloat16)
    return has_bfloat16


def test_the_processor_decides_the_types_of_a_cpu(multiplies: bool) -> None:
    products = torch.bfloat16 if multiplies else None
    expected: dict[BaseName, torch.dtype] = {
        "auto": torch.float32,
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "nf4": torch.float32,
    }
    assert {name: base_type(name, CPU) for name in expected} == expected
    assert [product_type(CPU, choice) for choice in (None, False, True)] == [products, None, torch.bfloat16]
    assert engine_type(CPU) == "float32"


def test_the_plan_counts_the_types_of_the_processor(tmp_path: Path, multiplies: bool) -> None:
    unset = LearnerSettings("bundled", tmp_path, device="cpu", lora_rank=4)
    named = replace(unset, base="float32", bfloat16=multiplies)
    load = Workload(groups=2, completions=4, prompt_tokens=64, new_tokens=64, sampled_groups=2)
    plans = [estimate_memory(settings, load, "cpu") for settings in (unset, named)]
    assert plans[0] == plans[1]
    whole = [replace(settings, lora_rank=0, base="auto") for settings in (unset, named)]
    plans = [estimate_memory(settings, load, "cpu") for settings in whole]
    assert plans[0] == plans[1]


def test_a_frozen_base_without_adapters_is_refused() -> None:
    assert require_float32_without_adapters("auto", 0) == "float32"
    assert require_float32_without_adapters("nf4", 16) == "nf4"
    with pytest.raises(SapoError, match="nothing would be left to train") as caught:
        require_float32_without_adapters("nf4", 0)
    assert "lora_rank" in caught.value.hint


def test_unset_types_are_those_of_the_processor(tmp_path: Path, multiplies: bool) -> None:
    settings = LearnerSettings("bundled", tmp_path, device="cpu", lora_rank=4, max_new_tokens=4)
    trainer = Service(settings)._trainer
    frozen = {each.dtype for each in trainer.policy.model.parameters() if not each.requires_grad}
    assert frozen == {torch.float32}
    assert trainer._gradients._scale.value == 1.0  # type: ignore[attr-defined]
    assert {parameter.dtype for parameter in trainer.parameters} == {torch.float32}
    report = trainer.step([GROUP])
    assert report.gradient_norm > 0
    assert not report.rolled_back


def test_ranks_whose_hardware_has_different_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for multiplies in (True, False):
        monkeypatch.setattr(
            "sapo_client.learner.sizing.precision.has_bfloat16", lambda value=multiplies: value
        )
        names.append(type_names("auto", None, CPU))
    require_equal_types([names[0], names[0]])
    with pytest.raises(SapoError) as caught:
        require_equal_types(names)
    assert str(caught.value) == (
        "the learner's ranks have different data types: torch.float32 with products in torch.bfloat16, and"
        " torch.float32 with products in the parameters' own"
    )
    assert "learner.base" in caught.value.hint


@pytest.mark.parametrize("base", ["bfloat16", "float16", pytest.param("nf4", marks=needs_bitsandbytes)])
def test_adapters_stay_float32_and_learn_on_a_smaller_base(tmp_path: Path, base: BaseName) -> None:
    """The bundled policy: bitsandbytes' CPU kernel takes no layers as narrow as those of other tests."""
    settings = LearnerSettings(
        "bundled",
        tmp_path / "run",
        device="cpu",
        learning_rate=1e-2,
        lora_rank=4,
        base=base,
        max_new_tokens=4,
    )
    service = Service(settings)
    trainer = service._trainer
    assert {parameter.dtype for parameter in trainer.parameters} == {torch.float32}
    frozen = [each for each in trainer.policy.model.parameters() if not each.requires_grad]
    assert sum(each.nbytes for each in frozen) < sum(each.numel() for each in frozen) * 4
    report = trainer.step([GROUP])
    assert report.gradient_norm > 0
    assert not report.rolled_back
    arguments = {"prompts": ["12"], "completions_per_prompt": 2, "handles": [1]}
    assert len(service.call("generate", arguments)["completions"][0]) == 2


@pytest.mark.gpu
@needs_card
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("adamw8bit", marks=needs_bitsandbytes)])
@pytest.mark.parametrize("base", ["auto", "float16", pytest.param("nf4", marks=needs_bitsandbytes)])
def test_adapters_learn_on_a_card(tmp_path: Path, base: BaseName, optimizer: OptimizerName) -> None:
    """Every base and every optimizer takes steps towards the rewarded answer, and is sampled from."""
    settings = LearnerSettings(
        "bundled",
        tmp_path,
        device="cuda",
        learning_rate=1e-2,
        lora_rank=4,
        base=base,
        optimizer=optimizer,
        max_new_tokens=4,
    )
    service = Service(settings)
    trainer = service._trainer
    rows = [(GROUP.prompt, GROUP.completions[0])]

    def likelihood() -> float:
        with torch.no_grad():
            return float(completion_logprobs(trainer.policy.model, rows, trainer.policy.pad, 1.0).sum())

    before = likelihood()
    reports = [trainer.step([GROUP]) for _ in range(3)]
    assert not any(report.rolled_back for report in reports)
    assert likelihood() > before
    arguments = {"prompts": ["12"], "completions_per_prompt": 2, "handles": [1]}
    assert len(service.call("generate", arguments)["completions"][0]) == 2


@pytest.mark.gpu
@needs_card
def test_a_card_without_bfloat16_trains_with_a_loss_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parameters, products in float16: the gradient is that of float32 but for rounding."""
    folder = make_policy_folder(tmp_path / "model")
    monkeypatch.setattr("sapo_client.learner.sizing.precision._BFLOAT16_CAPABILITY", (99, 0))
    exact, half = (
        Trainer(load_policy(str(folder), "cuda"), LearnerSettings(str(folder), tmp_path, bfloat16=choice))
        for choice in (False, None)
    )
    assert product_type(half.policy.device, None) is torch.float16
    assert isinstance(half._gradients, GradientAccumulator)
    assert half._gradients._scale.value == FIRST_SCALE
    one, other = exact.step([GROUP]), half.step([GROUP])
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=0.02)
    assert not other.rolled_back


@needs_bitsandbytes
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_8_bit_moments_survive_a_checkpoint(tmp_path: Path, kind: str) -> None:
    """Of llama's matrices two are large enough for 8 bits; they share a table."""
    folder = make_policy_folder(tmp_path / "model", kind)

    def trainer() -> Trainer:
        return make_trainer(folder, optimizer="adamw8bit")

    store, whole = CheckpointStore(tmp_path / "checkpoints", "m"), trainer()
    whole.step([GROUP])
    store.save(whole, LearnerCounters(0))
    whole.step([GROUP])
    resumed = trainer()
    assert store.restore(resumed) == LearnerCounters(0)
    resumed.step([GROUP])
    for one, other in zip(whole.parameters, resumed.parameters, strict=True):
        assert torch.equal(one, other)


def test_the_loss_scale_halves_at_an_overflow_and_grows_after_a_while() -> None:
    scale = LossScale(torch.float16)
    assert (scale.accepts(math.inf), scale.value) == (False, FIRST_SCALE / 2)
    assert (scale.accepts(math.nan), scale.value) == (False, FIRST_SCALE / 4)
    assert all(scale.accepts(1.0) for _ in range(GROWTH_STEPS))
    assert scale.value == FIRST_SCALE / 2
    plain = LossScale(None)
    assert (plain.accepts(math.inf), plain.value) == (True, 1.0)


def test_the_scale_survives_losses_that_are_not_finite() -> None:
    """One damaged row must not leave a scale of 1, at which float16 loses most gradients for long."""
    scale = LossScale(torch.float16)
    assert scale.accepts(math.nan, math.nan)
    assert scale.value == FIRST_SCALE
    assert not scale.accepts(math.inf, 0.5), "this may be the scale's fault"
    assert scale.accepts(1.0, 0.5)
    assert scale.value == FIRST_SCALE / 2
    overflows = 0
    while not scale.accepts(math.inf, 0.5):  # at every scale, so it was not the scale's fault
        overflows += 1
    assert (overflows, scale.value) == (15, FIRST_SCALE / 2)


def test_a_gradient_that_overflows_is_computed_again_with_a_smaller_scale(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    plain, scaled = make_trainer(folder), make_trainer(folder)
    assert isinstance(scaled._gradients, GradientAccumulator)
    scaled._gradients._scale = LossScale(torch.float16)
    scaled._gradients._scale.value = 2.0**140  # the loss itself overflows float32 at first
    norms = [trainer.step([GROUP]).gradient_norm for trainer in (plain, scaled)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4), "clipping and AdamW would hide a scale"
    assert scaled._gradients._scale.value < 2.0**128
    for one, other in zip(plain.parameters, scaled.parameters, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert isinstance(scaled._gradients, GradientAccumulator)


def test_adapters_learn_ten_times_as_fast(tmp_path: Path) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu")
    assert default_learning_rate(policy.model) == 1e-4
    assert default_learning_rate(policy.with_adapters(4).model) == pytest.approx(1e-3)


def test_few_rows_in_memory_turn_checkpointing_on_unless_it_is_forbidden(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    states = []
    for choice, memory in ((None, 2**40), (None, 10 * 2**20), (False, 10 * 2**20), (True, 2**40)):
        trainer = make_trainer(folder, gradient_checkpointing=choice, memory_bytes=memory)
        states.append(trainer._watchdog.checkpointing)
    assert states == [False, True, False, True]


def test_adapters_are_written_alone_for_the_engine(tmp_path: Path) -> None:
    policy = load_policy(str(make_policy_folder(tmp_path / "model")), "cpu").with_adapters(4)
    save_adapters(policy.model, tmp_path / "adapters")
    names = set(load_file(tmp_path / "adapters/adapter_model.safetensors"))
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert (adapter_rank(policy.model), engine_options(policy.model)["max_lora_rank"]) == (4, 8)
    assert [engine_rank(rank) for rank in (1, 2, 16, 300)] == [1, 8, 16, 320]
    with pytest.raises(SapoError, match="up to rank 512"):
        engine_rank(513)


def test_settings_travel_to_the_child(tmp_path: Path) -> None:
    settings = LearnerSettings("m", tmp_path, base="nf4", optimizer="adamw8bit", loss="gspo")
    assert LearnerSettings.from_message(replace(settings).to_message()) == settings


@needs_bitsandbytes
@pytest.mark.parametrize("names", [("adamw", "adamw8bit"), ("adamw8bit", "adamw")])
def test_another_optimizer_continues_with_the_weights_and_empty_moments(
    tmp_path: Path, names: tuple[OptimizerName, OptimizerName]
) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    before, after = (
        LearnerSettings(str(folder), tmp_path / "run", device="cpu", optimizer=name) for name in names
    )
    whole = Service(before)
    whole._trainer.step([GROUP])
    whole.call("checkpoint", {})
    resumed = Service(after)
    assert resumed._trainer.optimizer.state_dict()["state"] == {}
    pairs = zip(resumed._trainer.parameters, whole._trainer.parameters, strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert resumed.about() == {
        **whole.about(),
        "notice": "the checkpoint was written with another learner.optimizer: the weights go on from it, the"
        " optimizer's moments start at zero",
    }
    assert not resumed._trainer.step([GROUP]).rolled_back
    resumed.call("checkpoint", {})
    assert Service(after).about() == {**resumed.about(), "notice": ""}
