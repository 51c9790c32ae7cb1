"""`sapo bench`: what safety costs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli import bench_train
from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_client.bench.admission import AdmissionMemory, AdmissionRate
    from sapo_client.bench.checking import CheckingRate, LoadRate

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What safety costs on this machine.")


@app.callback()
def root() -> None:
    """What safety costs on this machine."""


@command(app)
def verify(
    common: Common,
    messages: Annotated[int, typer.Option("--messages", min=100, help="Messages through admission.")] = 2000,
    rollouts: Annotated[int, typer.Option("--rollouts", min=10, help="Rollouts through the jail.")] = 500,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Length of each load phase.")] = 10.0,
) -> None:
    """Measure admission and verification, each against a bare form of itself in the same run.

    Nothing is sent and nothing of this node is touched; takes about a minute.
    """
    import trio

    from sapo_client.bench.admission import admission_memory, admission_rate
    from sapo_client.bench.checking import checking_rate, load_rate

    rate, memory = admission_rate(messages), admission_memory()
    checking = trio.run(checking_rate, rollouts)
    load = trio.run(load_rate, seconds)
    document = _document(rate, memory, checking, load)
    common.output.emit(
        document, Grid(("measure", "plain", "safe", "ratio"), _rows(rate, memory, checking, load))
    )


def _document(
    rate: AdmissionRate, memory: AdmissionMemory, checking: CheckingRate, load: LoadRate
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "format": "sapo/bench/verify/1",
        "admission": asdict(rate) | {"share_of_bare": rate.share},
        "memory": {"peak_over_message_size": dict(memory.peak_by_kind), "worst": memory.worst},
        "checking": asdict(checking) | {"jailed_over_in_process": checking.cost},
        "hostile_load": asdict(load) | {"share_of_calm": load.share},
    }


def _rows(
    rate: AdmissionRate, memory: AdmissionMemory, checking: CheckingRate, load: LoadRate
) -> list[tuple[str, str, str, str]]:
    calm_pause, pause = (
        f"{1000 * each:.1f}" for each in (load.calm_pause_seconds, load.longest_pause_seconds)
    )
    return [
        (
            "admission, messages per CPU second (plain: Ed25519 alone)",
            f"{rate.bare_per_second:.0f}",
            f"{rate.admitted_per_second:.0f}",
            f"{rate.share:.1%}",
        ),
        (
            "verification, ms per rollout (plain: stock scorer in process)",
            f"{1000 * checking.in_process_seconds:.3f}",
            f"{1000 * checking.jailed_seconds:.3f}",
            f"{checking.cost:.2f}x",
        ),
        (
            f"honest rollouts per second (safe: {load.offered_answers_per_second:.0f} hostile answers/s)",
            f"{load.calm_per_second:.1f}",
            f"{load.loaded_per_second:.1f}",
            f"{load.share:.1%}",
        ),
        ("longest pause of the event loop, ms", calm_pause, pause, "-"),
        ("peak memory of admission over message size, worst", "-", "-", f"{memory.worst:.2f}x"),
    ]


bench_train.register(app)
