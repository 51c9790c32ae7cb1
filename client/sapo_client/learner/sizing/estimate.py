"""Estimate of a learner's peak memory from the model's ``config.json``, before anything is loaded.

A step samples, then trains. Both hold the weights and the optimizer's moments; sampling adds a copy of the
weights that is laid out for it (the own sampler on a CPU) and the key-value cache; training adds gradients
and what autograd keeps of one micro-batch. The peak is the larger of the two.

Every part is counted from the model's shape; autograd's part comes from a forward pass through a model
without memory (``skeleton.py``, for a GPU ``half_precision.py``), or for the fast CPU path from the tensors
that its functions save. Only the libraries are a measured number. Tests compare the sum with the peak of real
processes.

A learner that samples the next round during a step (``learner.overlap``) needs both at once, and a copy of
what is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from sapo_client.learner.cpu.kept_states import MAX_BYTES, state_bytes
from sapo_client.learner.cpu.linear import MAX_KERNELS
from sapo_client.learner.losses.chunked_head import MIN_VOCABULARY, block_entries
from sapo_client.learner.memory import ACTIVATION_MARGIN
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.half_precision import saved_costs
from sapo_client.learner.sizing.head import HeadKind, head_kind
from sapo_client.learner.sizing.optimizers import MOMENT_BYTES
from sapo_client.learner.sizing.precision import BaseName, product_type
from sapo_client.learner.sizing.skeleton import (
    ModelShape,
    NoForwardPass,
    decoder_saved_bytes,
    make_skeleton,
    shape_of,
    trained_parameters,
)
from sapo_client.learner.watchdog import CPU_BUDGET_BYTES, FAST_TOKENS

MIB: Final = 2**20
GIB: Final = 2**30

LIBRARY_BYTES: Final = {"cpu": 400 * MIB, "cuda": 780 * MIB}
"""Python, PyTorch and transformers in memory (measured); on CUDA a context and its kernels on the GPU, as an
H200 has them with PyTorch 2.11."""

ADAPTER_LIBRARY_BYTES: Final = 52 * MIB
"""Memory of peft and its imports beside the libraries (measured)."""

KERNEL_BYTES: Final = MAX_KERNELS * MIB // 2
"""oneDNN's compiled kernels where sampling multiplies in bfloat16 (measured): attention's products have ever
other lengths. Float32 ones are MKL's, which compiles nothing."""

BASE_BYTES: Final[dict[BaseName, float]] = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "nf4": 0.53}
"""Of a weight; a 4-bit one has a scale per 64 weights, itself in 8 bits."""

HALF: Final[frozenset[BaseName]] = frozenset({"bfloat16", "float16"})

_FLOAT: Final = 4.0
_PROBES: Final = (16, 48)


@dataclass(frozen=True, slots=True)
class Workload:
    """Texts of one step.

    Attributes:
        groups: own and external ones, each with a prompt of its own.
        completions: of a group.
        prompt_tokens: of a usual prompt.
        new_tokens: of the longest completion.
        sampled_groups: groups that are sampled at once.
    """

    groups: int
    completions: int
    prompt_tokens: int
    new_tokens: int
    sampled_groups: int

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.groups * self.completions

    @property
    def width(self) -> int:
        """Tokens of the longest prompt with its completion."""
        return self.prompt_tokens + self.new_tokens


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of a learner's memory by what they are for.

    Attributes:
        libraries: before a model is loaded.
        weights: adapters included.
        moments: of all optimizers.
        gradients: of trained parameters, the mean with which others' text is compared, and the fused copies
            that the fast CPU path makes of weights.
        activations: of one micro-batch, its head included.
        sampler: copies of weights and the key-value cache.
        trained: number of trained parameters.
        micro_rows: rows of a micro-batch.
        overlaps: whether it samples during a step.
        roughly: whether activations follow from the model's sizes alone, because its architecture computes
            nothing without values.
    """

    libraries: float
    weights: float
    moments: float
    gradients: float
    activations: float
    sampler: float
    trained: int
    micro_rows: int
    overlaps: bool = False
    roughly: bool = False

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        training = self.gradients + self.activations
        step = training + self.sampler if self.overlaps else max(training, self.sampler)
        return self.libraries + self.weights + self.moments + step

    def in_words(self) -> str:
        """Return the parts in one line, in GiB."""
        names = ("libraries", "weights", "moments", "gradients", "activations", "sampler")
        parts = ", ".join(f"{name} {getattr(self, name) / GIB:.1f}" for name in names)
        return f"{parts} (activations roughly, from the model's sizes)" if self.roughly else parts


def estimate_memory(settings: LearnerSettings, workload: Workload, device: str) -> MemoryEstimate:
    """Return the planned peak of a learner on ``cpu`` or ``cuda``.

    Args:
        settings: of the learner.
        workload: of a step.
        device: type of the device.

    Raises:
        SapoError: the model's configuration cannot be read.
    """
    plain = make_skeleton(settings.model)
    shape = shape_of(plain)
    adapted = make_skeleton(settings.model, lora_rank=settings.lora_rank)
    trained = trained_parameters(adapted)
    checkpointing = bool(settings.gradient_checkpointing)
    fast = (
        device == "cpu" and shape.llama_style and not (settings.lora_rank or settings.gradient_checkpointing)
    )
    moments = MOMENT_BYTES[settings.optimizer] * trained * (2 if settings.demonstrations_per_step else 1)
    # gradients of activations stand beside them; of recomputed ones, only a layer's are there at all
    margin = ACTIVATION_MARGIN if device == "cpu" and not (fast or checkpointing) else 1.0
    batch, roughly = 0.0, False
    try:
        if device == "cuda":
            row, batch = _gpu_row(shape, workload, settings)
        elif fast:
            row, batch = _fast_row(plain, workload), _kept(plain, workload)
        else:
            row = _row(adapted, workload, checkpointing)
    except NoForwardPass:
        row, roughly = _rough_row(shape, workload, checkpointing, device), True
    rows = _micro_rows(row, workload, settings, device)
    copies = _fused_bytes(shape, settings) if fast else 0.0
    base = _base(settings, device)
    gradients = _FLOAT * trained * (1 + settings.agreement) + copies + _head_gradient(shape, settings)
    activations, is_whole = margin * rows * row + batch, rows == workload.rows
    if is_whole:  # a layer's activations are freed as its gradient is made
        outside = 0 if settings.lora_rank else shape.head
        activations = max(0.0, activations - _FLOAT * (trained - outside))
    head = _head_kind(settings, shape)
    if head.in_blocks:
        positions = rows * workload.new_tokens
        activations += _head_bytes(shape, positions, base, frozen=bool(settings.lora_rank), device=device)
    else:  # all logits are there before there is any gradient of the first micro-batch
        positions = rows * (workload.new_tokens if head.keeps_few else workload.width)
        logits = _all_logits_bytes(head, positions * shape.vocabulary, half=device == "cuda" or base in HALF)
        activations = max(activations, rows * row + batch + logits - (gradients if is_whole else 0.0))
    return MemoryEstimate(
        libraries=_libraries(settings, base, device),
        weights=_weights(shape, base, device) + _FLOAT * trained * _copies(settings),
        moments=moments,
        gradients=gradients,
        activations=activations,
        sampler=_sampler(shape, workload, copied=_copied_weights(shape, settings, device)),
        trained=trained,
        micro_rows=rows,
        overlaps=settings.overlap,
        roughly=roughly,
    )


def _copies(settings: LearnerSettings) -> int:
    """Return how often there is what is trained beside the base or the model itself.

    By default only small policies are averaged, which need no plan.
    """
    adapters, ahead = bool(settings.lora_rank), settings.overlap and not settings.vllm
    averaged = settings.demonstrations_per_step and settings.demonstration_averaging
    # the student, the policy while the student is trained, the candidate
    return adapters + ahead + (2 + settings.held_back if averaged else 0)


def _base(settings: LearnerSettings, device: str) -> BaseName:
    """Return the base's type by name, without ``auto``; without adapters it is float32."""
    name = settings.base if settings.lora_rank else "float32"
    if name == "auto":
        return "float32" if device == "cpu" else "bfloat16"
    return name


def _libraries(settings: LearnerSettings, base: BaseName, device: str) -> float:
    """Return the bytes of libraries and, on a CPU, of peft and of kernels compiled for sampling."""
    if device == "cuda" or not settings.lora_rank:
        return LIBRARY_BYTES[device]
    kernels = KERNEL_BYTES if base in HALF and not settings.vllm else 0
    return LIBRARY_BYTES[device] + ADAPTER_LIBRARY_BYTES + kernels


def _weights(shape: ModelShape, base: BaseName, device: str) -> float:
    """Return the bytes of the base."""
    if base == "nf4":
        rest = BASE_BYTES["float32" if device == "cpu" else "bfloat16"]
        return BASE_BYTES["nf4"] * shape.matrices + rest * (shape.parameters - shape.matrices)
    return BASE_BYTES[base] * shape.parameters


def _copied_weights(shape: ModelShape, settings: LearnerSettings, device: str) -> int:
    """Return the weights that the own sampler lays out once more: on a CPU all, on a GPU those it fuses."""
    if not shape.llama_style or settings.lora_rank or settings.vllm:
        return 0
    return shape.matrices + shape.head if device == "cpu" else _fused(shape)


def _fused_bytes(shape: ModelShape, settings: LearnerSettings) -> float:
    """Return the bytes of weights that the fast CPU path puts together or casts, and of their gradients."""
    products = product_type(torch.device("cpu"), settings.bfloat16)
    cast = products.itemsize * shape.matrices if products else 0.0
    return 2.0 * (_FLOAT * _fused(shape) + cast)


def _fused(shape: ModelShape) -> int:
    """Return the weights of a Llama-style model that are put together: all but the output projections."""
    return round(0.75 * shape.matrices)


def _row(skeleton: Any, workload: Workload, checkpointing: bool) -> float:
    """Return the bytes of a row in transformers' forward and backward pass: a T + b T^2."""
    short, long = _PROBES
    at_short, at_long = (
        decoder_saved_bytes(skeleton, width, checkpointing=checkpointing) for width in _PROBES
    )
    # two points and the origin: what does not depend on the row is small
    quadratic = max(0.0, (at_long / long - at_short / short) / (long - short))
    linear = at_short / short - quadratic * short
    return linear * workload.width + quadratic * workload.width**2


def _gpu_row(shape: ModelShape, workload: Workload, settings: LearnerSettings) -> tuple[float, float]:
    """Return the bytes of a row on a GPU, and those of a micro-batch beside its rows."""
    half = bool(settings.lora_rank) and settings.base != "float32"
    checkpointing = bool(settings.gradient_checkpointing)
    costs = saved_costs(
        settings.model,
        1 if checkpointing else shape.layers,
        lora_rank=settings.lora_rank,
        half_base=half,
    )
    row = costs.row.of(workload.width)
    if checkpointing:  # every layer's input, and all that one layer keeps
        row += (2.0 if half else _FLOAT) * shape.layers * shape.hidden * workload.width
    return row, costs.batch


def _rough_row(shape: ModelShape, workload: Workload, checkpointing: bool, device: str) -> float:
    """Return the bytes of a row of a usual decoder (arXiv 2205.05198, section 4.1).

    A layer keeps 17 values of the width for each token, and 2.5 for each head and pair of tokens.
    """
    width = workload.width
    value = _FLOAT if device == "cpu" else BASE_BYTES["bfloat16"]
    layer = value * (17 * shape.hidden * width + 2.5 * shape.heads * width**2)
    if checkpointing:  # every layer's input, and all that one layer keeps
        return layer + _FLOAT * shape.layers * shape.hidden * width
    return layer * shape.layers


def _fast_row(skeleton: Any, workload: Workload) -> float:
    """Return the bytes of a row in the fast CPU path, its share of a group's prompt included."""
    config = skeleton.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    prompt, new = workload.prompt_tokens, workload.new_tokens
    tokens = new + prompt / workload.completions
    # the first norm's result, two sums, attention's input and output, gate and up
    per_token = 3 * config.hidden_size + 2 * heads * dim + 2 * kv_heads * dim + 2 * config.intermediate_size
    attended = 2 * kv_heads * dim * (new + prompt) + heads * dim * new + heads * new * (new + prompt)
    of_prompt = (2 * kv_heads * dim + heads * dim) * prompt + heads * prompt**2
    values = tokens * per_token + attended + of_prompt / workload.completions
    return float(_FLOAT * config.num_hidden_layers * values)


def _micro_rows(row: float, workload: Workload, settings: LearnerSettings, device: str) -> int:
    """Return the rows of a micro-batch: all of the step, unless tokens or memory are too many."""
    tokens = settings.micro_batch_tokens or FAST_TOKENS
    rows = min(workload.rows, max(1, tokens // workload.width))
    if device == "cpu":
        rows = min(rows, max(1, int(CPU_BUDGET_BYTES / row)))
    if settings.memory_bytes is not None:
        rows = min(rows, max(1, int(settings.memory_bytes / row)))
    return rows


def _head_kind(settings: LearnerSettings, shape: ModelShape) -> HeadKind:
    """Return how the logits are computed; those of a small vocabulary are counted as blocks are."""
    if shape.vocabulary < MIN_VOCABULARY or shape.llama_style:
        return HeadKind()
    try:
        return head_kind(settings.model)
    except NoForwardPass:
        return HeadKind()


def _all_logits_bytes(head: HeadKind, values: int, *, half: bool) -> float:
    """Return the bytes of logits that all exist at once, as the softmax's gradient is made.

    These are the softmax, its gradient and that of the losses, in float32, and what autograd keeps of the
    steps after the head, on a GPU and of a base of 16 bits in 16 bits.
    """
    kept = BASE_BYTES["bfloat16"] if half else _FLOAT
    return (3 * _FLOAT + head.saved * kept) * values


def _head_bytes(shape: ModelShape, positions: int, base: BaseName, *, frozen: bool, device: str) -> float:
    """Return the bytes of the head: blocks of logits, or all of them with softmax and gradient.

    The forward pass has a block twice. The backward pass has it once, and of a head that is trained a copy of
    the block's weights, for its gradient or for oneDNN's layout, and the gradient, which is counted there.
    """
    if shape.vocabulary < MIN_VOCABULARY:
        return 3 * _FLOAT * positions * shape.vocabulary
    entries = block_entries(positions, shape.hidden, shape.vocabulary, device)
    block = entries * positions
    copy = entries * shape.hidden
    peak = 2 * block if frozen else max(2 * block - shape.head, block + copy)
    if device == "cpu" and base in HALF:  # copied to float32, block by block
        peak += copy
    return _FLOAT * (peak + positions * shape.hidden)


def _head_gradient(shape: ModelShape, settings: LearnerSettings) -> float:
    """Return the bytes of a second gradient of the head, of which a tied embedding has its own."""
    return _FLOAT * shape.head if shape.vocabulary >= MIN_VOCABULARY and not settings.lora_rank else 0.0


def _kept(skeleton: Any, workload: Workload) -> float:
    """Return the bytes of what the own sampler keeps for the first update."""
    rows = workload.sampled_groups * workload.completions
    tokens = workload.sampled_groups * workload.prompt_tokens + rows * workload.new_tokens
    found = state_bytes(skeleton.config, tokens)
    return found if found <= MAX_BYTES else 0.0


def _sampler(shape: ModelShape, workload: Workload, *, copied: int) -> float:
    """Return the bytes of sampling: key-value cache, logits, and copies of weights."""
    rows = workload.sampled_groups * workload.completions
    cache = _FLOAT * shape.cache_values * workload.width * rows
    logits = 2 * _FLOAT * rows * shape.vocabulary
    return cache + logits + _FLOAT * copied
