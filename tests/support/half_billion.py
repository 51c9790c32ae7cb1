"""Two nodes with a model of Qwen2.5-0.5B's shape and adapters, in one swarm at the level `easy`.

    python tests/support/half_billion.py FOLDER --steps 3

Real checkers, real databases, two real learner processes; messages go through an in-memory transport. The
weights are random but for the last layer, which is fitted until it writes some answer in the form that the
tasks ask for: guesses, right now and then. So groups have an advantage, which a group must have to be drawn
by another node. Prints, as JSON, the plan from the configuration, each learner's and the nodes' peak of
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
from sapo_client.lab.tokenizer import train_tokenizer
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.estimate import MIB, Workload, estimate_memory
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_verification.suites.catalogue import family, suite

FAMILIES = ["count_bits"]
PROMPTS, ANSWERS, MOST_STEPS, FITTED_NATS, NEGATIVES = 1, 4, 400, 0.5, 4096
PROMPT_TOKENS = 64
LEARNER: dict[str, Any] = {
    "lora_rank": 16,
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
    parser.add_argument("--patience", type=float, default=3600.0)
    options = parser.parse_args()
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
    """Save a model of the shape with a tokenizer of the families' prompts."""
    torch.manual_seed(0)
    drawn = documents([family(name, "easy") for name in FAMILIES], 50, seed=0)
    texts = [each for one in drawn.values() for each in one]
    tokenizer = train_tokenizer([each.prompt + _answer(each.answer) for each in texts])
    model = new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, shape)
    pairs = [(one.prompt, _answer(other.answer)) for one in texts[:PROMPTS] for other in texts[:ANSWERS]]
    _fit_last_layer(model, tokenizer, pairs)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _answer(value: str) -> str:
    return f"<answer>{value}</answer>"


def _fit_last_layer(model: Any, tokenizer: Any, pairs: list[tuple[str, str]]) -> None:
    """Train the last layer and the norm behind it on what reaches it from prompts with answers."""
    rows = [
        (tokenizer(prompt)["input_ids"], [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id])
        for prompt, answer in pairs
    ]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -1)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor([*prompt, *answer])
        labels[row, len(prompt) - 1 : end - 1] = torch.tensor(answer)
    last, reached = model.model.layers[-1], list[Any]()
    hook = last.register_forward_pre_hook(lambda _, *given: reached.extend(given), with_kwargs=True)
    with torch.no_grad():
        model.model(ids, attention_mask=(ids != tokenizer.pad_token_id).long(), use_cache=False)
    hook.remove()
    model.requires_grad_(False)
    trained = [*last.requires_grad_().parameters(), *model.model.norm.requires_grad_().parameters()]
    optimizer = torch.optim.AdamW(trained, lr=5e-3)
    answers = labels >= 0
    # a part of the other tokens stands for all of them: their rows of the head are random
    written: torch.Tensor = labels[answers].unique()  # type: ignore[no-untyped-call]
    others = torch.randperm(model.config.vocab_size)[:NEGATIVES]
    others = others[~torch.isin(others, written)]
    head = model.lm_head.weight[torch.cat([written, others])]
    share = (model.config.vocab_size - len(written)) / max(1, len(others))
    offset = torch.cat([torch.zeros(len(written)), torch.full((len(others),), math.log(share))])
    targets = torch.searchsorted(written, labels[answers])
    for _ in range(MOST_STEPS):
        found = last(*reached[0], **reached[1])
        hidden = model.model.norm(found[0] if isinstance(found, tuple) else found)[answers]
        loss = torch.nn.functional.cross_entropy(hidden @ head.t() + offset, targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if float(loss.detach()) < FITTED_NATS:
            break


def _planned_mib(model: Path) -> int:
    """Return the planned peak of one learner."""
    settings = LearnerSettings(
        str(model),
        model,
        device="cpu",
        lora_rank=LEARNER["lora_rank"],
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
    return round(estimate_memory(settings, load, "cpu").peak / MIB)


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
