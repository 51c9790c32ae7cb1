"""Two nodes with a random model of Qwen2.5-0.5B's shape and adapters, in one swarm at the level `easy`.

    python tests/support/half_billion.py FOLDER --steps 2

Real checkers, real databases, two real learner processes; messages go through an in-memory transport. A
random model earns nothing, so that no group has an advantage: the KL term (weight 0.01) trains all groups,
own and external, at the cost of one more forward pass through the base. Prints, as JSON, each learner's and
the nodes' peak of resident memory, and every step's seconds of processor and of wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.nodes import Home, manifest_of

from sapo_client.config import CanaryConfig, Config
from sapo_client.lab.corpus import documents
from sapo_client.lab.pretrain import new_model
from sapo_client.lab.tokenizer import train_tokenizer
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_verification.suites.catalogue import family, suite

FAMILIES = ["chain_sum", "count_bits", "coin_flip"]
LEARNER: dict[str, Any] = {
    "lora_rank": 16,
    "local_groups": 1,
    "external_groups": 1,
    "completions": 2,
    "max_new_tokens": 24,
    "kl_weight": 0.01,
    "demonstrations_per_step": 0,
    "device": "cpu",
}


class LargeHome(Home):
    """A home whose node checks no canary, which would answer 64 held-out items before the first step."""

    @property
    def config(self) -> Config:
        """Configuration of the node."""
        return super().config.model_copy(update={"canary": CanaryConfig(every_rounds=0)})


def main() -> None:
    """Make the model, run both nodes, print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--shape", default="qwen2.5-0.5b")
    parser.add_argument("--patience", type=float, default=3600.0)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    model = _model(options.folder / "model", options.shape)
    manifest = manifest_of(suite("easy", FAMILIES))
    homes: list[Home] = [
        LargeHome(options.folder / f"{n}", n, manifest, model, learner=LEARNER) for n in (1, 2)
    ]
    peaks: dict[str, int] = {}
    trio.run(_run, homes, options.steps, options.patience, peaks)
    print(json.dumps({"peak_mib": peaks, "steps": [_steps(home) for home in homes]}, indent=1))


def _model(folder: Path, shape: str) -> Path:
    """Save a random model of the shape with a tokenizer of the families' prompts, once."""
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        drawn = documents([family(name, "easy") for name in FAMILIES], 50, seed=0)
        tokenizer = train_tokenizer([each.prompt for one in drawn.values() for each in one])
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        new_model(len(tokenizer), end, pad, shape).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        prompts = [len(tokenizer(one[0].prompt)["input_ids"]) for one in drawn.values()]
        print("tokens of a prompt:", prompts, file=sys.stderr, flush=True)
    return folder


async def _run(homes: list[Home], steps: int, patience: float, peaks: dict[str, int]) -> None:
    hub = MemoryHub()
    with trio.fail_after(patience):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, homes, peaks)
            async with trio.open_nursery() as nodes:
                for home, other in zip(homes, reversed(homes), strict=True):
                    nodes.start_soon(home.node(hub, neighbours=[other], steps=steps).run)
            nursery.cancel_scope.cancel()


async def _watch(homes: list[Home], peaks: dict[str, int]) -> None:
    """Read the high-water marks of resident memory until cancelled; the kernel keeps them."""
    while True:
        _note(peaks, "both nodes, one process", os.getpid())
        for home in homes:
            for process in _learners(home):
                _note(peaks, f"learner {home.number}", process)
        await trio.sleep(0.5)


def _learners(home: Home) -> list[int]:
    log, found = home.data.learner / "learner.log", []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "fd" / "2").readlink() == log:
                found.append(int(process.name))
        except OSError:  # it ended, or belongs to another user
            continue
    return found


def _note(peaks: dict[str, int], name: str, process: int) -> None:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("VmHWM:"):
            peaks[name] = max(peaks.get(name, 0), int(line.split()[1]) // 1024)


def _steps(home: Home) -> list[dict[str, Any]]:
    names = ("step", "seconds", "loss", "gradient_norm", "mismatch")
    return [
        {name: event[name] for name in names} | {"external": bool(event["external"])}
        for event in home.events("step")
    ]


if __name__ == "__main__":
    main()
