"""Settings of a learner."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from sapo_client.learner.losses.cross_entropy import TokenWeighting
    from sapo_client.learner.losses.external import ExternalLossName

DAMAGED: Final = ".torn-"
"""What the name of a damaged checkpoint begins with after it was passed over."""

DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """Model, hyperparameters and directory of one learner.

    Attributes:
        model: ``bundled`` or ``bundled-chatty``, a local folder, or a Hugging Face hub name.
        directory: for checkpoints and the log of the learner's process.
        seed: root of every random stream.
        learning_rate: AdamW's; None chooses by the model's size (``trainer.default_learning_rate``).
        temperature: of sampling, and of the policy that is trained.
        max_new_tokens: longest completion, end token included.
        threads: torch threads; on a shared CPU more than one is slower, because OpenMP threads spin.
        device: ``auto`` takes CUDA if there is a device.
        fresh: start from ``model`` although checkpoints exist; they are moved aside.
        bfloat16: whether training computes matrix products in bfloat16; None: on CUDA only.
        lora_rank: rank of low-rank adapters, which are trained instead of the model; 0 for none.
        gradient_checkpointing: save each layer's input only and recompute its activations: slower, much less
            memory.
        memory_bytes: for training beside the model; None: all that is free at the start.
        micro_batch_tokens: most tokens, padding included, in one forward and backward pass; None:
            ``watchdog.FAST_TOKENS``. Fewer if memory is short.
        length_normalised: mean over each completion's tokens first (GRPO) instead of over all (DAPO).
        passes: optimisation epochs per batch (PPO's K).
        mini_batches: optimizer steps per optimisation epoch.
        kl_weight: weight in the loss of the KL divergence from the starting model (GRPO's beta).
        own_baseline: take other nodes' advantages relative to this node's own mean reward in the family.
        external_loss: of other nodes' text, a name in ``losses.external.EXTERNAL_LOSSES``; ``reinforce`` is
            the paper's.
        positive_steps: steps over which the loss ``positive`` falls from its first weight to its last.
        demonstrations_per_step: most demonstrations in a supervised step; 0: none are kept or trained.
        demonstration_capacity: most demonstrations kept.
        demonstration_rate: learning rate of supervised steps; None chooses by the model's size
            (``supervised.default_demonstration_rate``).
        demonstration_weighting: of tokens in supervised steps, a name in
            ``losses.cross_entropy.TOKEN_WEIGHTS``.
        need_below: own mean reward in a family from which its demonstrations are neither trained nor kept.
        vllm: whether to sample with vLLM.
        checkpoint_share: greatest share of the running time for automatic checkpoints; 0 makes none.
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
    external_loss: ExternalLossName = "reinforce"
    positive_steps: int = 200
    demonstrations_per_step: int = 64
    demonstration_capacity: int = 600
    demonstration_rate: float | None = None
    demonstration_weighting: TokenWeighting = "plain"
    need_below: float = 0.6
    vllm: bool = False
    checkpoint_share: float = 0.05

    def to_message(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return {**asdict(self), "directory": str(self.directory)}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> LearnerSettings:
        """Return the settings that ``to_message`` wrote."""
        known = {field.name for field in fields(cls)}
        plain = {name: value for name, value in message.items() if name in known}
        return cls(**{**plain, "directory": Path(plain["directory"])})
