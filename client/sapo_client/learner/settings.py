"""Settings of a learner."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from sapo_client.learner.losses.cross_entropy import TokenWeighting
    from sapo_client.learner.losses.forms import LossName
    from sapo_client.learner.sizing.optimizers import OptimizerName
    from sapo_client.learner.sizing.precision import BaseName

DAMAGED: Final = ".torn-"
"""Prefix of the name of a damaged checkpoint that was skipped."""

OUT_OF_MEMORY: Final = 75
"""Exit status of a learner with several ranks that ran out of memory: its next start uses smaller
micro-batches, so it does not count as a crash."""

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
        completion_bytes: of the tasks' longest completion, from which and from the model ``max_new_tokens``
            follows at the start (``sizing.fit.with_fitting_tokens``); None: it is as set.
        threads: torch threads; on a shared CPU more than one is slower, because OpenMP threads spin.
        device: ``auto`` takes CUDA if there is a device.
        ranks: processes that share the model, one per GPU; None: as many as there are GPUs.
        ranks_socket: Unix socket of ranks that torchrun has started, instead of own ones.
        fresh: start from ``model`` although checkpoints exist; they are moved aside.
        bfloat16: whether training, and on a CPU sampling, computes matrix products in bfloat16; None: where
            the hardware has bfloat16, and in float16 on a GPU that has only that.
        base: data type of the model under adapters, which is frozen; ``auto``: 16 bits on CUDA, float32
            on a CPU; without adapters it is float32.
        optimizer: ``adamw``, or ``adamw8bit`` with moments in 8 bits.
        lora_rank: rank of low-rank adapters, which are trained instead of the model; 0 for none.
        gradient_checkpointing: save each layer's input only and recompute its activations: slower, much less
            memory; None: if few rows would fit otherwise.
        memory_bytes: for training beside the model; None: all that is free at the start.
        micro_batch_tokens: most tokens, padding included, in one forward and backward pass; None:
            ``watchdog.FAST_TOKENS``. Fewer if memory is short.
        loss: form of the loss of own completions, a name in ``losses.forms.LOSS_FORMS``.
        overlap: sample the next round while the present one trains, with the weights before its step.
        sequence_ratio_cap: an own completion whose ratio, trainer to sampler, exceeds it is not trained; 0:
            no cap.
        length_normalised: mean over each completion's tokens first (GRPO) instead of over all (DAPO).
        passes: optimisation epochs per batch (PPO's K).
        mini_batches: optimizer steps per optimisation epoch.
        kl_weight: weight in the loss of the KL divergence from the starting model (GRPO's beta).
        own_baseline: take other nodes' advantages relative to this node's own mean reward in the family.
        external_loss: of other nodes' text, a name in ``losses.external.EXTERNAL_LOSSES`` or of a plug-in;
            ``reinforce`` is the paper's.
        agreement: train only those completions of other nodes that the gradient of the own groups agrees
            with (``losses/own_gradient.py``); before there is one, none.
        positive_steps: steps over which the loss ``positive`` falls from its first weight to its last.
        demonstrations_per_step: most demonstrations in a supervised step; 0: none are kept or trained.
        demonstration_steps: supervised steps per training step; None chooses by the model's size, as for the
            two that follow (``supervised.default_schedule``).
        demonstration_averaging: decay of the average of the weights over supervised steps, which becomes the
            policy; 0: the policy has the last weights.
        held_back: whether that average is a candidate beside the policy until ``Service.promote``.
        shows_steps: whether the tasks have text beside the answer, so that demonstrations show steps.
        demonstration_capacity: most demonstrations kept, and most own right answers.
        demonstration_rate: learning rate of supervised steps.
        demonstration_weighting: of tokens in supervised steps, a name in
            ``losses.cross_entropy.TOKEN_WEIGHTS``.
        need_below: own mean reward in a family from which its demonstrations are neither trained nor kept.
        own_steps_kept: last steps whose own groups are kept for ``Service.shadow``.
        vllm: whether to sample with vLLM.
        tinker: whether the model is on a server of the Tinker API, which trains and samples.
        endpoint: URL of a server; None: the default one.
        endpoint_key: its key.
        checkpoint_share: greatest share of the running time for automatic checkpoints; 0 makes none.
    """

    model: str
    directory: Path
    seed: int = 0
    learning_rate: float | None = None
    temperature: float = 1.0
    max_new_tokens: int = 64
    completion_bytes: int | None = None
    threads: int = 1
    device: DeviceChoice = "auto"
    ranks: int | None = 1
    ranks_socket: str | None = None
    fresh: bool = False
    bfloat16: bool | None = None
    base: BaseName = "auto"
    optimizer: OptimizerName = "adamw"
    lora_rank: int = 0
    gradient_checkpointing: bool | None = False
    memory_bytes: int | None = None
    micro_batch_tokens: int | None = None
    loss: LossName = "dapo"
    overlap: bool = False
    sequence_ratio_cap: float = 3.0
    length_normalised: bool = False
    passes: int = 1
    mini_batches: int = 1
    kl_weight: float = 0.0
    own_baseline: bool = False
    external_loss: str = "reinforce"
    agreement: bool = False
    positive_steps: int = 200
    demonstrations_per_step: int = 64
    demonstration_steps: int | None = None
    demonstration_averaging: float | None = None
    held_back: bool = False
    shows_steps: bool = False
    demonstration_capacity: int = 4000
    demonstration_rate: float | None = None
    demonstration_weighting: TokenWeighting = "plain"
    need_below: float = 0.6
    own_steps_kept: int = 0
    vllm: bool = False
    tinker: bool = False
    endpoint: str | None = None
    endpoint_key: str | None = field(default=None, repr=False)
    checkpoint_share: float = 0.05

    def to_message(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return {**asdict(self), "directory": str(self.directory)}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> LearnerSettings:
        """Return the settings that ``to_message`` wrote."""
        known = {each.name for each in fields(cls)}
        plain = {name: value for name, value in message.items() if name in known}
        return cls(**{**plain, "directory": Path(plain["directory"])})
