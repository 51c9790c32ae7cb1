"""What a learner is started with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """One learner's model, numbers and place on disk.

    Attributes:
        model: ``bundled`` or ``bundled-chatty``, a local folder, or a Hugging Face hub name.
        directory: checkpoints and the child's log go here.
        seed: root of every random stream.
        learning_rate: AdamW's; None chooses by the model's size (``trainer.default_learning_rate``).
        temperature: of sampling, and of the policy that is trained.
        max_new_tokens: longest completion, end token included.
        threads: torch threads; on a shared CPU more than one is slower, for OpenMP spins.
        device: ``auto`` takes CUDA where there is one.
        fresh: start from ``model`` although checkpoints exist (they are kept aside).
        bfloat16: matrix products of training in bfloat16; None: on CUDA.
        lora_rank: of low-rank adapters, which are trained instead of the model; 0 for none.
        gradient_checkpointing: keep each layer's input only and compute the rest again: slower, much smaller.
        memory_bytes: for training beside the model; None: what is free at the start.
        micro_batch_tokens: most tokens, padding included, in one forward and backward pass; None: what is
            fast on the device (``watchdog.FAST_TOKENS``). Fewer where memory is short.
        length_normalised: mean over each completion's tokens first (GRPO) instead of over all (DAPO).
        passes: how often each batch is gone through.
        mini_batches: optimizer steps per pass.
        kl_weight: of the divergence from the starting model in the loss.
        own_baseline: measure other nodes' groups against this node's success in their family.
        vllm: sample with vLLM.
        checkpoint_share: most of the running time to spend on automatic checkpoints; 0 makes none.
    """

    model: str
    directory: Path
    seed: int = 0
    learning_rate: float | None = None
    temperature: float = 1.0
    max_new_tokens: int = 64
    threads: int = 1
    device: DeviceChoice = "auto"
    fresh: bool = False
    bfloat16: bool | None = None
    lora_rank: int = 0
    gradient_checkpointing: bool = False
    memory_bytes: int | None = None
    micro_batch_tokens: int | None = None
    length_normalised: bool = False
    passes: int = 1
    mini_batches: int = 1
    kl_weight: float = 0.0
    own_baseline: bool = False
    vllm: bool = False
    checkpoint_share: float = 0.05

    def to_message(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {**asdict(self), "directory": str(self.directory)}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> LearnerSettings:
        """The settings that ``to_message`` wrote."""
        known = {field.name for field in fields(cls)}
        plain = {name: value for name, value in message.items() if name in known}
        return cls(**{**plain, "directory": Path(plain["directory"])})
