"""TRL's GRPOTrainer at the work of `sapo bench train`; runs in its own environment, without sapo."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def now(device: str) -> float:
    """Return processor seconds; on a GPU wall time, once it has finished all work."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_mib(device: str) -> float:
    """Return the peak of resident memory; on a GPU, of the memory that PyTorch reserved there."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return torch.cuda.max_memory_reserved() / 2**20


def vllm_options(work: dict[str, Any]) -> dict[str, Any]:
    """Return the options of sampling with vLLM in this process, and of training in bfloat16, on a GPU."""
    if work["device"] == "cpu":
        return {"use_cpu": True, "bf16": work["bfloat16"], "use_vllm": False}
    # the same share of the card as our learner's engine has
    sampling = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4}
    return {**sampling, "vllm_max_model_length": 512, "bf16": True}


class Clock(TrainerCallback):  # type: ignore[misc]
    """Clock of the seconds of each step and of the part of it before completions are scored."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds: list[float] = []
        self.sampling: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock before a step's prompts are fetched."""
        self._started = now(self._device)

    def sampled(self) -> None:
        """Record that a step's completions are decoded to text."""
        self.sampling.append(now(self._device) - self._started)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the end of a step."""
        self.seconds.append(now(self._device) - self._started)


def main() -> None:
    """Train; print the cost of every step."""
    work = json.load(sys.stdin)
    torch.set_num_threads(1)
    # the variables that torchrun sets for one process; TRL's colocated engine needs them
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    if work["device"] == "cuda":
        os.environ.update({**alone, "MASTER_PORT": "29511"})
    tokens: list[int] = []

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        clock.sampled()
        tokens.append(sum(map(len, completion_ids)))
        rewarded = work["informative"] * work["completions"]  # a group's completions are neighbours
        return [
            sum(map(str.isdigit, text)) / 100 * (index < rewarded) for index, text in enumerate(completions)
        ]

    clock = Clock(work["device"])
    config = GRPOConfig(
        output_dir=work["folder"] + "/trl",
        **vllm_options(work),
        fp16=False,
        per_device_train_batch_size=work["groups"] * work["completions"],
        gradient_accumulation_steps=1,
        num_generations=work["completions"],
        max_completion_length=work["new_tokens"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=work["learning_rate"],
        max_steps=work["steps"],
        report_to=[],
        save_strategy="no",
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=0,
        model_init_kwargs={"dtype": "float32"},
    )
    GRPOTrainer(
        model=work["model"],
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in work["prompts"]]),
        processing_class=AutoTokenizer.from_pretrained(work["model"], trust_remote_code=False),
        callbacks=[clock],
    ).train()
    found = {
        "seconds": clock.seconds,
        "sampling_seconds": clock.sampling,
        "tokens": tokens,
        "peak_mib": peak_mib(work["device"]),
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
