"""`sapo bench train`: the cost of a training step, compared with peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_client.bench.train import TrainCost

UNITS = {"cpu": "CPU-s", "cuda": "s"}


def register(app: typer.Typer) -> None:
    """Register the command."""
    command(app)(train)
    command(app)(sample)


ShapeOption = Annotated[
    str,
    typer.Option(
        "--shape", metavar="NAME", help="Shape of the random model: bundled, qwen2.5-0.5b or qwen2.5-7b."
    ),
]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option("--device", help="Device of sapo's learner.")]
LoraOption = Annotated[
    int, typer.Option("--lora-rank", min=0, help="Rank of adapters on a frozen model; 0: none.")
]

MemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory-gib",
        metavar="GIB",
        min=0.01,
        help="Memory of sapo's learner on the device, the model included; unset: what is free.",
    ),
]
PeersOption = Annotated[
    str | None,
    typer.Option(
        "--peers",
        metavar="A,B",
        help="Peers to compare with, by name; empty: none; unset: trl,genrl if they support the options.",
    ),
]


def sample(
    common: Common,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Batches; the first is not counted.")] = 8,
    device: DeviceOption = "cpu",
    shape: ShapeOption = "bundled",
    lora_rank: LoraOption = 0,
) -> None:
    """Measure how many tokens per second each backend of sapo's learner samples.

    The work is that of `sapo bench train` without the training: eight groups of eight completions.
    """
    from dataclasses import asdict

    from sapo_client.bench.train import Load, train_costs

    load = Load(steps=steps, rounds=1, device=device, shape=shape, lora_rank=lora_rank, trains=False)
    costs = train_costs([], load, Path(), common.output.note)
    document = {"format": "sapo/bench/sample/1", "contestants": [asdict(cost) for cost in costs]}
    columns = ("contestant", "release", "tokens per batch", f"tokens per {UNITS[device]}", "peak MiB")
    rows = [
        (cost.name, cost.release, cost.tokens, cost.tokens / cost.sampling_seconds, cost.peak_mib)
        for cost in costs
    ]
    common.output.emit(document, Grid(columns, rows))


def train(
    common: Common,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="Steps per round; the first is not counted.")
    ] = 24,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Rounds in which every program runs once.")
    ] = 3,
    informative: Annotated[
        int, typer.Option("--informative", min=1, max=8, help="Groups out of eight that have an advantage.")
    ] = 8,
    bfloat16: Annotated[
        bool | None,
        typer.Option(
            "--bfloat16/--float32",
            help="Type of matrix products; unset: bfloat16 where the hardware has it, as in a node.",
        ),
    ] = None,
    peers: PeersOption = None,
    device: DeviceOption = "cpu",
    shape: ShapeOption = "bundled",
    lora_rank: LoraOption = 0,
    memory_gib: MemoryOption = None,
    environments: Annotated[
        Path | None,
        typer.Option(
            "--environments", metavar="DIR", help="Folder into which peers are installed, and kept."
        ),
    ] = None,
) -> None:
    """Measure processor seconds and memory of a training step against TRL and genrl.

    A peer is installed once into an environment of its own from the package index: 2 GB and some minutes.
    Sapo's learner runs with its own sampler, with transformers' generate, and with vLLM if that is installed.
    On a CPU all times are processor time; on a GPU they are wall-clock time, and trl has vLLM colocated.
    --memory-gib limits the memory that is used on a GPU; on a CPU it limits only the memory plan of training.
    """
    from dataclasses import asdict

    import platformdirs

    from sapo_client.bench.train import Load, train_costs
    from sapo_client.paths import APPLICATION

    folder = environments or Path(platformdirs.user_cache_dir(APPLICATION)) / "bench"
    load = Load(
        steps=steps,
        rounds=rounds,
        informative=informative,
        bfloat16=bfloat16,
        device=device,
        shape=shape,
        lora_rank=lora_rank,
        memory_gib=memory_gib,
    )
    names = ("" if device == "cuda" else ",".join(load.peers)) if peers is None else peers
    chosen = [peer for peer in names.split(",") if peer]
    costs = train_costs(chosen, load, folder.resolve(), common.output.note)
    document = {"format": "sapo/bench/train/1", "contestants": [asdict(cost) for cost in costs]}
    common.output.emit(document, _grid(costs, UNITS[device]))


def _grid(costs: Sequence[TrainCost], unit: str) -> Grid:
    columns = (
        *("contestant", "release", f"{unit} per step", "sapo's share of it", "tokens per step"),
        *(f"tokens per {unit}", f"sampled per {unit}", "peak MiB"),
    )
    rows = [
        (
            cost.name,
            cost.release,
            cost.seconds,
            costs[0].seconds / cost.seconds,
            cost.tokens,
            cost.tokens / cost.seconds,
            cost.tokens / cost.sampling_seconds,
            cost.peak_mib,
        )
        for cost in costs
    ]
    return Grid(columns, rows)
