"""The planned peak of memory against the peak of real learner processes, of three shapes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    GraniteConfig,
    JambaConfig,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
)

from sapo_client.errors import SapoError
from sapo_client.lab.pretrain import SHAPES, new_model
from sapo_client.learner.memory import saved_tensor_bytes
from sapo_client.learner.policy import load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.estimate import MIB, MemoryEstimate, Workload, estimate_memory
from sapo_client.learner.sizing.fit import require_weights_fit
from sapo_client.learner.sizing.half_precision import saved_costs
from sapo_client.learner.sizing.presets import level_for
from sapo_client.learner.sizing.skeleton import decoder_saved_bytes, make_skeleton, shape_of

LIBRARY_FILE_BYTES = 113 * MIB
"""Pages of the libraries' files, a part of ``LIBRARY_BYTES``: 113 to 147 MiB in two installations of one
version, for the kernel maps a file in the pieces in which the page cache holds it, and drops them when memory
is short."""

WORKLOAD = Workload(groups=2, completions=4, prompt_tokens=64, new_tokens=64, sampled_groups=2)
ON_A_CARD = Workload(groups=8, completions=8, prompt_tokens=128, new_tokens=128, sampled_groups=8)

PROGRAM = """
import json, sys
from pathlib import Path
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
work = json.loads(sys.argv[1])
service = Service(LearnerSettings.from_message(work["settings"]))
for step in range(2):
    handles = [work["groups"] * step + index for index in range(work["groups"])]
    prompts = [f"{index + 1}" * work["prompt"] for index in range(work["groups"])]
    arguments = {"prompts": prompts, "completions_per_prompt": work["completions"], "handles": handles}
    texts = service.call("generate", arguments)["completions"]
    rewards = [1.0] + [0.0] * (work["completions"] - 1)
    groups = [
        {"prompt": prompt, "completions": group, "rewards": rewards, "external": False, "handle": handle}
        for prompt, group, handle in zip(prompts, texts, handles)
    ]
    assert service.call("train", {"groups": groups})["tokens"] > 100
if work["settings"]["device"] == "cuda":
    import torch
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()
    print((context + torch.cuda.max_memory_reserved()) // 2**20)
    sys.exit()
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
resident, mapping = 0, ""
for line in Path("/proc/self/smaps").read_text().splitlines():
    field, _, value = line.partition(":")
    if " " in field:
        mapping = line
    elif field in ("Rss", "Anonymous") and mapping.endswith(".safetensors"):
        resident += int(value.split()[0]) * (1 if field == "Rss" else -1)
print((int(status["VmHWM"].split()[0]) - int(status["RssFile"].split()[0]) + resident) // 1024)
"""


@dataclass(frozen=True)
class Trial:
    """A shape, and how it is trained.

    Attributes:
        shape: of the random model; none for the bundled policy.
        changes: of the settings.
        kind: of the random model.
    """

    shape: dict[str, Any] | None
    changes: dict[str, Any]
    kind: type[PretrainedConfig] = Qwen2Config


WIDE = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "vocab_size": 96_000,
}

TRIALS = {
    "bundled, all parameters": Trial(None, {}),
    "bundled, products in bfloat16": Trial(None, {"bfloat16": True}),
    "22 million, all parameters": Trial(
        {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "vocab_size": 32_000}, {}
    ),
    "20 million, divided logits": Trial(
        {
            "hidden_size": 256,
            "intermediate_size": 768,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "vocab_size": 64_000,
            "logits_scaling": 8.0,
        },
        {},
        GraniteConfig,
    ),
    # above SMALL_PARAMETERS: for a smaller model malloc keeps what a step has freed, in gaps of any size
    "80 million, adapters and checkpointing": Trial(
        {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 10, "vocab_size": 24_000},
        {"lora_rank": 16, "gradient_checkpointing": True},
    ),
    "82 million, capped logits, adapters and checkpointing": Trial(
        WIDE | {"head_dim": 128}, {"lora_rank": 16, "gradient_checkpointing": True}, Gemma2Config
    ),
    "80 million, adapters on bfloat16": Trial(
        {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 10, "vocab_size": 24_000},
        {"lora_rank": 16, "gradient_checkpointing": True, "base": "bfloat16", "bfloat16": True},
    ),
    "82 million, capped logits, adapters on bfloat16": Trial(
        WIDE | {"head_dim": 128},
        {"lora_rank": 16, "gradient_checkpointing": True, "base": "bfloat16", "bfloat16": True},
        Gemma2Config,
    ),
}

LONG: Final = {name for name in TRIALS if "adapters" in name}


def config_of(trial: Trial, end: int, pad: int) -> PretrainedConfig:
    """Return the configuration of a trial's random model."""
    sizes = {
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        **(trial.shape or {}),
    }
    return trial.kind(**sizes, eos_token_id=end, pad_token_id=pad)


def settings_of(trial: Trial, folder: Path) -> LearnerSettings:
    """Save the trial's random model with the bundled tokenizer; return the learner's settings."""
    model = "bundled"
    if trial.shape is not None:
        policy = load_policy("bundled", "cpu")
        model = str(folder / "model")
        config = config_of(trial, policy.end, policy.pad)
        AutoModelForCausalLM.from_config(config).save_pretrained(model)
        policy.tokenizer.save_pretrained(model)
    return learner_settings(model, folder, trial)


def learner_settings(model: str, folder: Path, trial: Trial) -> LearnerSettings:
    return LearnerSettings(
        model,
        folder / "run",
        device="cpu",
        max_new_tokens=WORKLOAD.new_tokens,
        demonstrations_per_step=0,
        checkpoint_share=0.0,
        **trial.changes,
    )


def measured_mib(settings: LearnerSettings, load: Workload = WORKLOAD) -> int:
    """Return the peak of a process that samples and trains twice, without pages of libraries.

    On a card: of what PyTorch reserved, and CUDA's context, if no other process uses the card.

    Those depend on the page cache: the kernel maps as much of a library as lies there in one piece. Pages of
    the weights' file count: a frozen base is read where it is mapped.
    """
    work = {
        "settings": settings.to_message(),
        "groups": load.groups,
        "prompt": load.prompt_tokens,
        "completions": load.completions,
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(work)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def in_mib(estimate: MemoryEstimate) -> dict[str, int]:
    parts = ("libraries", "weights", "moments", "gradients", "activations", "sampler")
    return {name: round(getattr(estimate, name) / MIB) for name in parts}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in TRIALS]
)
def test_the_measured_peak_is_near_the_plan(tmp_path: Path, name: str) -> None:
    settings = settings_of(TRIALS[name], tmp_path)
    estimate = estimate_memory(settings, WORKLOAD, "cpu")
    planned, measured = (estimate.peak - LIBRARY_FILE_BYTES) / MIB, measured_mib(settings)
    print(name, round(planned), measured, in_mib(estimate))  # shown with -s, for the results page
    assert measured == pytest.approx(planned, rel=0.1), in_mib(estimate)


CHECKPOINTED = {"lora_rank": 16, "gradient_checkpointing": True}
SCALED = WIDE | {"logits_scaling": 8.0}
MEASURED = {
    "capped logits": (Trial(WIDE | {"head_dim": 128}, {}, Gemma2Config), 2484),
    "scaled logits": (Trial(WIDE, {}, CohereConfig), 2184),
    "divided logits": (Trial(SCALED, {}, GraniteConfig), 2218),
    "capped logits, adapters": (Trial(WIDE | {"head_dim": 128}, CHECKPOINTED, Gemma2Config), 1450),
    "divided logits, adapters": (Trial(SCALED, CHECKPOINTED, GraniteConfig), 1259),
}
"""A trial of whose head all logits exist at once, and its measured peak in MiB (Zen 3, PyTorch 2.13)."""


@pytest.mark.parametrize("name", MEASURED)
def test_the_plan_of_all_logits_is_near_what_was_measured(tmp_path: Path, name: str) -> None:
    trial, measured = MEASURED[name]
    config_of(trial, 1, 0).save_pretrained(tmp_path / "model")
    estimate = estimate_memory(learner_settings(str(tmp_path / "model"), tmp_path, trial), WORKLOAD, "cpu")
    planned = (estimate.peak - LIBRARY_FILE_BYTES) / MIB
    assert planned == pytest.approx(measured, rel=0.1), in_mib(estimate)


CARD_TRIALS: dict[str, tuple[str, dict[str, Any], int]] = {
    "half a billion, all parameters": ("qwen2.5-0.5b", {"gradient_checkpointing": False}, 22_986),
    "half a billion, adapters": ("qwen2.5-0.5b", {"lora_rank": 16, "gradient_checkpointing": False}, 14_190),
    "half a billion, adapters and checkpointing": ("qwen2.5-0.5b", CHECKPOINTED, 3_160),
    "seven billion, adapters and checkpointing": ("qwen2.5-7b", CHECKPOINTED, 20_038),
    "seven billion in 4 bits": (
        "qwen2.5-7b",
        CHECKPOINTED | {"base": "nf4", "optimizer": "adamw8bit"},
        10_168,
    ),
}
"""Shape, settings, and the measured peak in MiB on an H200 with PyTorch 2.11 (docs/results.md)."""


def card_settings(name: str, folder: Path) -> LearnerSettings:
    """Return the settings of a trial on a card, without weights."""
    shape, changes, _ = CARD_TRIALS[name]
    Qwen2Config(**SHAPES[shape], tie_word_embeddings=True).save_pretrained(folder / "model")
    return LearnerSettings(
        str(folder / "model"),
        folder / "run",
        device="cuda",
        max_new_tokens=ON_A_CARD.new_tokens,
        demonstrations_per_step=0,
        checkpoint_share=0.0,
        **changes,
    )


@pytest.mark.parametrize("name", CARD_TRIALS)
def test_the_plan_for_a_gpu_is_near_its_measured_peak(tmp_path: Path, name: str) -> None:
    settings = card_settings(name, tmp_path)
    estimate = estimate_memory(settings, ON_A_CARD, "cuda")
    assert estimate.peak / MIB == pytest.approx(CARD_TRIALS[name][2], rel=0.1), in_mib(estimate)
    if not settings.lora_rank:
        assert estimate.sampler / MIB == pytest.approx(1408, rel=0.1), "measured as well"


SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}


def saved(kind: type[PretrainedConfig], folder: Path, **sizes: int) -> LearnerSettings:
    """Save the configuration of a small model; return a learner's settings for it."""
    kind(**SMALL, num_hidden_layers=3, vocab_size=300, pad_token_id=0, **sizes).save_pretrained(folder)
    return LearnerSettings(str(folder), folder / "run", device="cpu")


@pytest.mark.parametrize(
    ("kind", "lora_rank"),
    [
        (LlamaConfig, 0),
        (Gemma3TextConfig, 0),
        (Gemma3TextConfig, 4),
        (Phi3Config, 4),
        pytest.param(
            Qwen3MoeConfig,
            4,
            marks=pytest.mark.filterwarnings("ignore:The following (alpha|rank)_pattern keys"),
        ),
    ],
)
def test_other_architectures_have_a_plan_on_a_gpu(
    tmp_path: Path, kind: type[PretrainedConfig], lora_rank: int
) -> None:
    settings = replace(saved(kind, tmp_path), device="cuda", lora_rank=lora_rank)
    short = estimate_memory(settings, ON_A_CARD, "cuda")
    long = estimate_memory(settings, replace(ON_A_CARD, prompt_tokens=512), "cuda")
    assert not short.roughly
    assert 0 < short.activations / short.micro_rows < long.activations / long.micro_rows


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (OlmoeConfig, {"num_experts": 8, "num_experts_per_tok": 4}),
        (Qwen3MoeConfig, {"num_experts": 8, "moe_intermediate_size": 64, "head_dim": 16}),
        (MixtralConfig, {"num_local_experts": 8}),
        (GptOssConfig, {"num_local_experts": 8, "head_dim": 16}),
    ],
)
def test_the_planned_bytes_of_experts_equal_those_of_all_experts(
    tmp_path: Path, kind: type[PretrainedConfig], sizes: dict[str, int]
) -> None:
    """The plan's model has no values, so nobody knows which experts a token goes to."""
    settings = saved(kind, tmp_path, **sizes)
    config = kind.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")

    def forward() -> torch.Tensor:
        states = model.base_model(input_ids=torch.zeros((1, 48), dtype=torch.long), use_cache=False)
        return states.last_hidden_state  # type: ignore[no-any-return]

    real = saved_tensor_bytes(forward, list(model.parameters()))
    planned = decoder_saved_bytes(make_skeleton(str(tmp_path)), 48, checkpointing=False)
    assert planned == pytest.approx(real, rel=0.02)
    require_weights_fit(settings)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize(
    ("kind", "sizes", "rough"),
    [
        (OlmoeConfig, {}, [("cpu", 4)]),  # peft's adapters of experts ask for autocast on the device
        (Gemma2Config, {}, []),  # has no attention by scaled_dot_product_attention
        (GptOssConfig, {"head_dim": 16}, []),  # nor has this
        (OPTConfig, {}, [("cpu", 0), ("cpu", 4)]),  # expects a mask of another shape
        (JambaConfig, {}, [("cuda", 0), ("cuda", 4)]),  # its layers alternate: none stands for all
    ],
)
@pytest.mark.filterwarnings("ignore:The following (alpha|rank)_pattern keys", "ignore:.*mamba")
def test_every_architecture_has_a_plan(
    tmp_path: Path,
    kind: type[PretrainedConfig],
    sizes: dict[str, int],
    rough: list[tuple[str, int]],
    lora_rank: int,
    device: Literal["cpu", "cuda"],
) -> None:
    settings = replace(saved(kind, tmp_path, **sizes), device=device, lora_rank=lora_rank)
    short = estimate_memory(settings, ON_A_CARD, device)
    long = estimate_memory(settings, replace(ON_A_CARD, prompt_tokens=512), device)
    leaner = estimate_memory(replace(settings, gradient_checkpointing=True), ON_A_CARD, device)
    rows = [plan.activations / plan.micro_rows for plan in (leaner, short, long)]
    assert 0 < rows[0] < rows[1] < rows[2]
    expected = (device, lora_rank) in rough
    assert [plan.roughly for plan in (leaner, short, long)] == [expected] * 3
    assert ("roughly" in short.in_words()) is expected


@pytest.mark.parametrize("layers", [1, 4])
def test_fake_tensors_give_the_saved_bytes_of_real_ones(tmp_path: Path, layers: int) -> None:
    """Under autocast: what so many further layers keep of a row, and the 16-bit copies of their weights."""

    def kept(count: int) -> int:
        model = Qwen2ForCausalLM(Qwen2Config(**SMALL, num_hidden_layers=count, vocab_size=300))

        def forward() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                states = model.model(torch.zeros((1, 48), dtype=torch.long), use_cache=False)
                return states.last_hidden_state  # type: ignore[no-any-return]

        return saved_tensor_bytes(forward, list(model.parameters()))

    Qwen2Config(**SMALL, num_hidden_layers=layers, vocab_size=300).save_pretrained(tmp_path)
    costs = saved_costs(str(tmp_path), layers, lora_rank=0, half_base=False)
    assert costs.batch == 2 * shape_of(make_skeleton(str(tmp_path))).matrices
    real = kept(1 + layers) - kept(1)
    # transformers makes a mask where it sees fake tensors, and none where values are there
    assert real <= costs.batch + costs.row.of(48) < 1.06 * real


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name in CARD_TRIALS if name.startswith("half")])
def test_the_measured_peak_on_a_card_is_near_the_plan(tmp_path: Path, name: str) -> None:
    settings = card_settings(name, tmp_path)
    planned = estimate_memory(settings, ON_A_CARD, "cuda")
    policy = load_policy("bundled", "cpu")
    model = new_model(len(policy.tokenizer), policy.end, policy.pad, CARD_TRIALS[name][0])
    model.save_pretrained(settings.model)
    policy.tokenizer.save_pretrained(settings.model)
    measured = measured_mib(settings, ON_A_CARD)
    print(name, round(planned.peak / MIB), measured, in_mib(planned))  # shown with -s, for the results page
    assert measured == pytest.approx(planned.peak / MIB, rel=0.1), in_mib(planned)


def test_a_qwen_of_half_a_billion_is_counted_from_its_configuration_alone(tmp_path: Path) -> None:
    Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ).save_pretrained(tmp_path)
    shape = shape_of(make_skeleton(str(tmp_path)))
    assert (shape.parameters, shape.layers, shape.llama_style) == (494_032_768, 24, True)
    assert level_for(shape.parameters) == "full"
    full = estimate_memory(LearnerSettings(str(tmp_path), tmp_path), WORKLOAD, "cuda")
    adapters = estimate_memory(LearnerSettings(str(tmp_path), tmp_path, lora_rank=16), WORKLOAD, "cuda")
    small = LearnerSettings(str(tmp_path), tmp_path, lora_rank=16, base="nf4", optimizer="adamw8bit")
    assert full.trained == 494_032_768
    assert adapters.trained == 8_798_208
    row_by_row = LearnerSettings(str(tmp_path), tmp_path, micro_batch_tokens=16)
    one_row = estimate_memory(row_by_row, Workload(2, 1, 8, 8, 1), "cuda")
    assert one_row.activations > 2 * shape.matrices, "weights are copied to 16 bits"
    assert full.peak > 2 * adapters.peak > 2 * estimate_memory(small, WORKLOAD, "cuda").peak
    together = estimate_memory(LearnerSettings(str(tmp_path), tmp_path, overlap=True), WORKLOAD, "cuda")
    assert together.peak == pytest.approx(full.peak + full.sampler + 4 * full.trained)
    agreeing = estimate_memory(LearnerSettings(str(tmp_path), tmp_path, agreement=True), WORKLOAD, "cuda")
    assert agreeing.peak == full.peak + 4 * full.trained, "the mean of the own gradients"
    averaged = LearnerSettings(str(tmp_path), tmp_path, demonstration_averaging=0.9)
    for settings, copies in (
        (averaged, 2),
        (replace(averaged, held_back=True), 3),
        (replace(averaged, demonstrations_per_step=0), 0),
        (replace(averaged, demonstration_averaging=0.0), 0),
    ):
        unused = full.moments / 2 if not settings.demonstrations_per_step else 0.0
        found = estimate_memory(settings, WORKLOAD, "cuda").peak
        assert found == pytest.approx(full.peak + 4 * full.trained * copies - unused)
    long = replace(WORKLOAD, prompt_tokens=2048)
    assert estimate_memory(LearnerSettings(str(tmp_path), tmp_path), long, "cuda").peak > full.peak


def test_levels_by_size() -> None:
    assert [level_for(size) for size in (850_000, 494_000_000, 7_600_000_000)] == ["nano", "full", "full"]


def test_a_missing_configuration_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="cannot read the configuration of the model") as caught:
        make_skeleton(str(tmp_path / "nothing"))
    assert caught.value.text.endswith("nothing': there is no such folder")
    assert "config.json" in caught.value.hint
    assert torch.get_default_device() == torch.device("cpu")
