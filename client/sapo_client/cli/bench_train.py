"""`sapo bench train`: what a training step costs, beside a peer's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

COLUMNS = ("contestant", "release", "CPU-s per step", "tokens per step", "CPU-s per 1000 tokens", "peak MiB")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app)(train)


def train(
    common: Common,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps; the first is not counted.")] = 6,
    peers: Annotated[
        str, typer.Option("--peers", metavar="A,B", help="Peers to compare with, by name; empty: none.")
    ] = "trl",
    environments: Annotated[
        Path | None,
        typer.Option("--environments", metavar="DIR", help="Where peers are installed, and kept."),
    ] = None,
) -> None:
    """Measure the processor seconds and the memory of a training step against TRL's GRPOTrainer.

    A peer is installed into an environment of its own from the package index: once, 2 GB and some minutes.
    """
    from dataclasses import asdict

    import platformdirs

    from sapo_client.bench.train import train_costs
    from sapo_client.paths import APPLICATION

    folder = environments or Path(platformdirs.user_cache_dir(APPLICATION)) / "bench"
    costs = train_costs([peer for peer in peers.split(",") if peer], steps, folder.resolve())
    document = {"format": "sapo/bench/train/1", "contestants": [asdict(cost) for cost in costs]}
    rows = [
        (
            cost.name,
            cost.release,
            cost.cpu_seconds,
            cost.tokens,
            1000 * cost.cpu_seconds / cost.tokens,
            cost.peak_mib,
        )
        for cost in costs
    ]
    common.output.emit(document, Grid(COLUMNS, rows))
