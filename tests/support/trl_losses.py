"""GRPO losses and gradients as TRL computes them, on tensors that this file makes.

    python tests/support/trl_losses.py tests/client/learner/trl_losses.json

TRL's own loss function runs on a trainer that is given log-probabilities instead of computing them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import MethodType
from typing import Any, Final

import torch
from torch import Tensor

ROWS, PLACES = 6, 7
LENGTHS: Final = (7, 3, 5, 1, 6, 4)
LOSS_TYPES: Final = {"mean_over_tokens": "dapo", "mean_over_completions": "grpo"}
KL_WEIGHTS: Final = (0.0, 0.05)
LONGEST: Final = 9

FORMS: Final[dict[str, dict[str, Any]]] = {
    "dapo": {"loss_type": "dapo", "delta": 4.0},
    "dr_grpo": {"loss_type": "dr_grpo", "delta": 4.0, "max_completion_length": LONGEST},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
}
"""TRL's settings for our forms of the loss."""


def tensors() -> dict[str, Tensor]:
    """Return log-probabilities on policy, off policy and far off, those of a reference, advantages, mask."""
    random = torch.Generator().manual_seed(11)
    logprobs = -torch.rand((ROWS, PLACES), generator=random, dtype=torch.float64) * 4
    noise = torch.randn((2, ROWS, PLACES), generator=random, dtype=torch.float64) * 0.6
    old, reference = logprobs + noise[0], logprobs + noise[1]
    old[0] = logprobs[0]
    old[1, 0] = logprobs[1, 0] - 3.0
    old[3, 0] = logprobs[3, 0] + 3.0
    return {
        "logprobs": logprobs,
        "old_logprobs": old,
        "reference_logprobs": reference,
        "advantages": torch.tensor([1.5, -0.7, 0.0, 0.4, -1.2, 0.9], dtype=torch.float64),
        "mask": torch.tensor([[place < length for place in range(PLACES)] for length in LENGTHS]),
    }


def produce() -> dict[str, Any]:
    """Return the vectors: TRL's version, the tensors, and loss and gradient of each case."""
    import trl

    given = tensors()
    cases = [
        {
            "mean": mean,
            "kl_weight": kl_weight,
            **_trl_loss(given, {"loss_type": loss_type, "beta": kl_weight, "delta": 4.0}),
        }
        for mean, loss_type in LOSS_TYPES.items()
        for kl_weight in KL_WEIGHTS
    ]
    forms = [{"form": form, **_trl_loss(given, options)} for form, options in FORMS.items()]
    plain = {name: tensor.tolist() for name, tensor in given.items()}
    return {"produced_by": f"trl {trl.__version__}", "tensors": plain, "cases": cases, "forms": forms}


def _trl_loss(given: dict[str, Tensor], options: dict[str, Any]) -> dict[str, Any]:
    """Return the loss, and its gradient with respect to the log-probabilities, (B, T)."""
    logprobs = given["logprobs"].clone().requires_grad_()
    trainer = _trainer(options)

    def handed_over(*_: Any, **__: Any) -> tuple[Tensor, Tensor, None]:
        return logprobs, torch.zeros_like(logprobs), None

    trainer._get_per_token_logps_and_entropies = MethodType(handed_over, trainer)
    ids = torch.zeros((ROWS, PLACES), dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones_like(ids[:, :1]),
        "completion_ids": ids,
        "completion_mask": given["mask"].to(torch.long),
        "advantages": given["advantages"],
        "old_per_token_logps": given["old_logprobs"],
        "ref_per_token_logps": given["reference_logprobs"],
        "num_items_in_batch": given["mask"].sum(),
    }
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    assert logprobs.grad is not None
    return {"loss": float(loss.detach()), "gradient": logprobs.grad.tolist()}


def _trainer(options: dict[str, Any]) -> Any:
    from datasets import Dataset
    from support.policies import make_policy_folder
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    with tempfile.TemporaryDirectory() as folder:
        model = str(make_policy_folder(Path(folder) / "model"))
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=ROWS,
            num_generations=ROWS,
            use_bias_correction_kl=False,  # GRPO as published; the correction is younger
            **{"epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0, **options},
        )
        return GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["1 + 1 ="] * ROWS}),
            processing_class=AutoTokenizer.from_pretrained(model),
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    Path(sys.argv[1]).write_text(json.dumps(produce(), indent=1) + "\n", encoding="utf-8")
