"""The own learner at the work of `sapo bench train`, which reads the last line of its output."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


def reward(text: str) -> float:
    """The share of digits among the first eight characters."""
    return sum(character.isdigit() for character in text[:8]) / 8


def main() -> None:
    """Samples, scores, trains; the cost of every step."""
    work = json.load(sys.stdin)
    settings = LearnerSettings(
        model=work["model"],
        directory=Path(work["folder"]) / "own",
        learning_rate=work["learning_rate"],
        max_new_tokens=work["new_tokens"],
        device="cpu",
        checkpoint_share=0.0,
    )
    service = Service(settings)
    seconds, tokens = [], []
    for step in range(work["steps"]):
        prompts = work["prompts"][step * work["groups"] : (step + 1) * work["groups"]]
        started = time.process_time()
        sampled = service.generate(prompts, work["completions"], list(range(len(prompts))))
        service.train(
            [
                {
                    "prompt": prompt,
                    "completions": group,
                    "rewards": [reward(text.decode()) for text in group],
                    "external": False,
                    "handle": handle,
                }
                for handle, (prompt, group) in enumerate(zip(prompts, sampled["completions"], strict=True))
            ]
        )
        seconds.append(time.process_time() - started)
        tokens.append(sampled["tokens"])
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"cpu_seconds": seconds, "tokens": tokens, "peak_mib": peak_mib}) + "\n")


if __name__ == "__main__":
    main()
