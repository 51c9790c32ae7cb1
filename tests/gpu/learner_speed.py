"""GPU figures of the learner that no benchmark of `sapo bench` measures; prints JSON.

    python tests/gpu/learner_speed.py push --shape qwen2.5-7b
    python tests/gpu/learner_speed.py ranks --shape qwen2.5-0.5b

``push``: seconds to bring a random model's adapters into a running vLLM engine, its greedy probe included.
``ranks``: tokens per second of rounds, sampled and trained, by one process and by two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.learner_child import learner_child

from sapo_client.lab.pretrain import new_model
from sapo_client.learner.policy import BUNDLED, load_policy
from sapo_client.learner.settings import DeviceChoice, LearnerSettings

ADAPTERS: Final = 16
PUSHES: Final = 4
ROUNDS: Final = 4
GROUPS, COMPLETIONS, NEW_TOKENS = 8, 8, 64


def main() -> None:
    """Measure one figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("figure", choices=("push", "ranks"))
    parser.add_argument("--shape", default="bundled")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pushes = options.figure == "push"
        model = make_model(Path(folder), options.shape, half=pushes and options.device == "cuda")
        if pushes:
            found: dict[str, Any] = {"seconds": push_seconds(model, options.device)}
        else:
            found = {
                str(ranks): tokens_per_second(model, Path(folder) / f"{ranks}", ranks, options.device)
                for ranks in (1, 2)
            }
    print(json.dumps(found))


def make_model(folder: Path, shape: str, *, half: bool = False) -> str:
    """Save a random model of a shape with the bundled tokenizer, float32 or bfloat16."""
    policy = load_policy(BUNDLED, "cpu")
    model = new_model(len(policy.tokenizer), policy.end, policy.pad, shape, half=half)
    model.save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    return str(folder / "model")


def push_seconds(model: str, device: DeviceChoice) -> float:
    """Return the median seconds of a push of adapters into vLLM; the first one is left out."""
    from sapo_client.learner.vllm.generator import VllmGenerator

    policy = load_policy(model, device, base="auto").with_adapters(ADAPTERS)
    sampler = VllmGenerator(policy, seed=0)
    seconds = []
    for _ in range(PUSHES):
        started = time.perf_counter()
        sampler.refresh()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def tokens_per_second(model: str, directory: Path, ranks: int, device: DeviceChoice) -> float:
    """Return the completion tokens of whole rounds per second; the first one is left out."""
    settings = LearnerSettings(
        model,
        directory,
        device=device,
        ranks=ranks,
        max_new_tokens=NEW_TOKENS,
        demonstrations_per_step=0,
        checkpoint_share=0.0,
    )
    prompts = [f"{number} + 7 =\n" for number in range(GROUPS)]
    tokens, started = 0, 0.0
    with learner_child(settings) as child:
        for number in range(ROUNDS):
            if number == 1:
                tokens, started = 0, time.perf_counter()
            handles = [GROUPS * number + index for index in range(GROUPS)]
            sampled = child.call(
                "generate", prompts=prompts, completions_per_prompt=COMPLETIONS, handles=handles
            )
            groups = [
                {"prompt": prompt, "completions": texts, "handle": handle, "external": False}
                | {"rewards": [1.0, *[0.0] * (len(texts) - 1)]}
                for prompt, texts, handle in zip(prompts, sampled["completions"], handles, strict=True)
            ]
            child.call("train", groups=groups)
            tokens += sampled["tokens"]
        return tokens / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
