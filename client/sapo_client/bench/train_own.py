"""Our learner at the work of `sapo bench train`, which reads the last line of its output."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.generate import Completion, FastGenerator, Generator, PlainGenerator
from sapo_client.learner.memory import GIB, available_bytes
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.precision import sampling_type
from sapo_client.learner.trainer import Trainer


def reward(completion: Completion, vocabulary: int) -> float:
    """Return the number of digits divided by 100, which varies enough for every group to have an advantage.

    Token ids beyond the tokenizer's vocabulary have no text; every even one of them counts as a digit.
    """
    beyond = sum(token >= vocabulary and token % 2 == 0 for token in completion.tokens)
    return (sum(map(str.isdigit, completion.text)) + beyond) / 100


def generator(policy: Policy, backend: str, *, bfloat16: bool | None) -> Generator:
    """Return the generator of a backend, regardless of the learner's own choice."""
    if backend == "vllm":
        from sapo_client.learner.vllm.generator import VllmGenerator

        return VllmGenerator(policy, seed=0)
    if backend == "own":
        return FastGenerator(policy, products=sampling_type(policy.device, bfloat16))
    return PlainGenerator(policy)


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


def groups_of(
    policy: Policy, work: dict[str, Any], prompts: list[tuple[int, ...]], sampled: list[list[Completion]]
) -> list[TrainingGroup]:
    """Return a step's groups with their rewards, of which the first ones differ."""
    return [
        TrainingGroup(
            prompt=prompt,
            completions=tuple(completion.tokens for completion in group),
            rewards=tuple(
                reward(completion, len(policy.tokenizer)) * (index < work["informative"])
                for completion in group
            ),
            external=False,
            behaviour=tuple(completion.logprobs for completion in group),
            states=tuple(completion.states for completion in group),
        )
        for index, (prompt, group) in enumerate(zip(prompts, sampled, strict=True))
    ]


def hold_to(limit_gib: float, device: str) -> None:
    """Limit the memory that PyTorch reserves on a GPU; an allocation above the limit fails as out of memory.

    Memory that PyTorch does not allocate, such as CUDA's context, is not counted. On a CPU there is no limit.
    """
    if device == "cuda":
        card = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_gib * GIB / card))


def memory_beside(policy: Policy, limit_gib: float) -> int:
    """Return the bytes for training: a limit minus the loaded model, or the free memory if that is less.

    Raises:
        SapoError: the model alone is larger than the limit.
    """
    tensors = [*policy.model.parameters(), *policy.model.buffers()]
    model = sum(each.nbytes for each in tensors)
    beside = limit_gib * GIB - model
    if beside <= 0:
        raise SapoError(
            f"the model alone takes {model / GIB:.2f} GiB of {limit_gib} GiB",
            hint="raise --memory-gib, or take a smaller --shape",
            exit_code=ExitCode.CONFIG,
        )
    return int(min(beside, available_bytes(policy.device)))


def opened(work: dict[str, Any]) -> tuple[Policy, LearnerSettings]:
    """Load the policy within the memory limit, with the settings to train it."""
    limit = work["memory_gib"]
    settings = LearnerSettings(
        model=work["model"],
        directory=Path(work["folder"]) / "own",
        learning_rate=work["learning_rate"],
        device=work["device"],
        bfloat16=work["bfloat16"],
        max_new_tokens=work["new_tokens"],
        lora_rank=work["lora_rank"],
        gradient_checkpointing=None if work["lora_rank"] or limit else False,
    )
    if limit:
        hold_to(limit, work["device"])
    policy = load_policy(settings.model, settings.device, base="auto" if settings.lora_rank else "float32")
    if settings.lora_rank:
        policy = policy.with_adapters(settings.lora_rank)
    return policy, replace(settings, memory_bytes=memory_beside(policy, limit)) if limit else settings


def main() -> None:
    """Sample, score and train; print the cost of every step."""
    work = json.load(sys.stdin)
    torch.set_num_threads(1)
    device = work["device"]
    policy, settings = opened(work)
    sampler = generator(policy, sys.argv[1], bfloat16=settings.bfloat16)
    trainer = Trainer(policy, settings) if work["trains"] else None
    seconds, sampling, tokens = [], [], []
    for step in range(work["steps"]):
        prompts = work["prompts"][step * work["groups"] : (step + 1) * work["groups"]]
        started = now(device)
        encoded = [policy.encode_prompt(prompt) for prompt in prompts]
        sampled = sampler.sample(
            encoded,
            completions_per_prompt=work["completions"],
            max_new_tokens=work["new_tokens"],
            temperature=1.0,
            seed=step,
        )
        sampling.append(now(device) - started)
        if trainer is not None:
            trainer.step(groups_of(policy, work, encoded, sampled))
        seconds.append(now(device) - started)
        tokens.append(sum(len(completion.tokens) for group in sampled for completion in group))
    found = {
        "seconds": seconds,
        "sampling_seconds": sampling,
        "tokens": tokens,
        "peak_mib": peak_mib(device),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
