"""Two nodes with a model of Qwen2.5-0.5B's shape and adapters, in one swarm at the level `easy`.

    python tests/support/half_billion.py FOLDER --steps 3
    python tests/support/half_billion.py FOLDER --steps 3 --device cuda --shape qwen2.5-7b

Real checkers, real databases, two real learner processes; messages go through an in-memory transport. The
weights are random but for a few rows and a bias, which make the model write some words, then one of a few
answers, then the end: guesses, right now and then. So groups have an advantage, which a group must have to be
drawn by another node. Prints, as JSON, the plan from the configuration, each learner's and the nodes' peak of
resident memory, and every step with its seconds of wall time.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any, cast

import torch
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.nodes import Home, manifest_of

from sapo_client.config import CanaryConfig, Config
from sapo_client.lab.corpus import documents
from sapo_client.lab.pretrain import new_model
from sapo_client.lab.tokenizer import train_tokenizer, words_of_prompts
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.estimate import MIB, Workload, estimate_memory
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_verification.suites.catalogue import family, suite

FAMILIES = ["count_bits"]
GUESSES = ("3", "4", "5", "6")
WORDS, SHARE, PREFERENCE = 16, 3.0, 18.0
"""Words that may come before a guess; the common direction's share of a hidden state; nats of preference."""
PROMPT_TOKENS = 113
LEARNER: dict[str, Any] = {
    "lora_rank": 16,
    "gradient_checkpointing": True,
    "local_groups": 2,
    "external_groups": 2,
    "completions": 4,
    "max_new_tokens": 24,
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--lora-rank", type=int, default=16, help="0 trains all parameters")
    parser.add_argument("--patience", type=float, default=3600.0)
    options = parser.parse_args()
    LEARNER.update(device=options.device, lora_rank=options.lora_rank)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    model = options.folder / "model"
    if not (model / "config.json").exists():  # in a process of its own, so that it counts for no peak
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(_make_model, (model, options.shape))
    manifest = manifest_of(suite("easy", FAMILIES))
    homes: list[Home] = [
        LargeHome(options.folder / f"{n}", n, manifest, model, learner=LEARNER) for n in (1, 2)
    ]
    peaks: dict[str, int] = {}
    trio.run(_run, homes, options.steps, options.patience, peaks)
    print(
        json.dumps(
            {
                "planned_mib": _planned_mib(model),
                "peak_mib": peaks,
                "steps": [_steps(home) for home in homes],
            },
            indent=1,
        )
    )


def _make_model(folder: Path, shape: str) -> None:
    """Save a random model of the shape that writes words and then a guess, with its tokenizer."""
    torch.manual_seed(0)
    drawn = documents([family(name, "easy") for name in FAMILIES], 50, seed=0)
    texts = [each for one in drawn.values() for each in one]
    prompts = [each.prompt for each in texts]
    tokenizer = train_tokenizer(words_of_prompts(prompts), [f"<answer>{each}</answer>" for each in GUESSES])
    model = new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, shape)
    words = [number for word, number in tokenizer.get_vocab().items() if word.isalpha() and word.isascii()]
    guesses = [tokenizer.convert_tokens_to_ids(f"<answer>{each}</answer>") for each in GUESSES]
    _prefer(model, torch.tensor(tokenizer(prompts[0])["input_ids"]), words=words, guesses=guesses)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def _prefer(model: Any, ids: torch.Tensor, *, words: list[int], guesses: list[int]) -> None:
    """Make some words and all guesses equally likely, and the end likely after a guess alone.

    A constant that attention's values have by their bias reaches the last hidden state, in a direction that
    the head's rows of these tokens share. The embedding of a guess has a second direction, which stays in the
    hidden state at its place; the end token's row of the head looks for it.

    Args:
        model: of random weights; its head is its embedding.
        ids: of a prompt, (T,), by which the size of the last hidden state is measured.
        words: tokens that come before a guess; ``WORDS`` of them are taken.
        guesses: tokens that are answers.
    """
    attention, rows = model.model.layers[-1].self_attn, model.model.embed_tokens.weight
    width = rows.shape[1]
    common, guessed = directions = torch.linalg.qr(torch.randn(width, 2))[0].T
    # nothing else writes these two directions into the hidden states
    rows -= rows @ directions.T @ directions
    for layer in model.model.layers:
        for written in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            written -= directions.T @ (directions @ written)
    states: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, given: states.append(given[0]))
    model.model(ids[None], use_cache=False)
    hook.remove()
    size = float(states[0][0, -1].norm()) * SHARE
    # the output projection maps this bias, the same in all heads, onto the common direction
    groups = attention.config.num_attention_heads // attention.config.num_key_value_heads
    heads = attention.v_proj.bias.view(-1, attention.head_dim).repeat_interleave(groups, 0)
    attention.v_proj.bias.fill_(1.0)
    ones = torch.ones(heads.numel())
    mapped = attention.o_proj.weight @ ones
    attention.o_proj.weight += torch.outer(size * common - mapped, ones) / len(ones)
    unit = width**0.5 * size / math.hypot(size, size / SHARE)  # of a hidden state along the common direction
    rows[[*words[:WORDS], *guesses]] += common * PREFERENCE / unit
    rows[guesses] += guessed * size
    end = model.config.eos_token_id
    rows[end] += guessed * (size + 4 * PREFERENCE / unit)


def _planned_mib(model: Path) -> int:
    """Return the planned peak of one learner."""
    settings = LearnerSettings(
        str(model),
        model,
        device=LEARNER["device"],
        lora_rank=LEARNER["lora_rank"],
        gradient_checkpointing=LEARNER["gradient_checkpointing"],
        max_new_tokens=LEARNER["max_new_tokens"],
        demonstrations_per_step=0,
    )
    load = Workload(
        LEARNER["local_groups"] + LEARNER["external_groups"],
        LEARNER["completions"],
        PROMPT_TOKENS,
        LEARNER["max_new_tokens"],
        LEARNER["local_groups"] + LEARNER["external_groups"],
    )
    return round(estimate_memory(settings, load, LEARNER["device"]).peak / MIB)


async def _run(homes: list[Home], steps: int, patience: float, peaks: dict[str, int]) -> None:
    hub = MemoryHub()
    with trio.move_on_after(patience):  # the figures so far are printed all the same
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
    names = ("step", "seconds", "reward", "loss", "gradient_norm", "groups", "skipped")
    return [
        {name: event[name] for name in names} | {"external": len(cast("list[Any]", event["external"]))}
        for event in home.events("step")
    ]


if __name__ == "__main__":
    main()
