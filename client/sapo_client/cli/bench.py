"""`sapo bench`: measure what verification, the ledger and training cost on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapo_client.cli import bench_train
from sapo_client.cli.options import Common, command
from sapo_client.cli.render import Grid

if TYPE_CHECKING:
    from sapo_client.bench.admission import AdmissionRate
    from sapo_client.bench.checking import CheckingRate, LoadRate
    from sapo_client.bench.costs import StepCost
    from sapo_client.bench.ledger import LedgerGas
    from sapo_client.bench.memory import Peak
    from sapo_client.bench.spread import Spread

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure the cost of safety and training."
)


@app.callback()
def root() -> None:
    """Measure the cost of safety and training."""


@command(app)
def verify(
    common: Common,
    messages: Annotated[int, typer.Option("--messages", min=100, help="Messages through admission.")] = 2000,
    rollouts: Annotated[int, typer.Option("--rollouts", min=10, help="Rollouts through the jail.")] = 500,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Length of each load phase.")] = 10.0,
) -> None:
    """Measure admission and verification, each against its minimal form in the same run.

    Sends no messages and does not touch this node's data; takes about a minute.
    """
    import trio

    from sapo_client.bench.admission import admission_rate
    from sapo_client.bench.checking import checking_rate, load_rate
    from sapo_client.bench.memory import admission_memory

    rate, memory = admission_rate(messages), admission_memory()
    checking = trio.run(checking_rate, rollouts)
    load = trio.run(load_rate, seconds)
    common.output.emit(
        _document(rate, memory, checking, load),
        Grid(("measure", "plain", "safe", "ratio"), _rows(rate, memory, checking, load)),
    )


def _document(
    rate: AdmissionRate, memory: Mapping[str, Peak], checking: CheckingRate, load: LoadRate
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "format": "sapo/bench/verify/2",
        "admission": asdict(rate),
        "memory": {name: asdict(peak) for name, peak in memory.items()},
        "checking": asdict(checking),
        "hostile_load": asdict(load),
    }


def _rows(
    rate: AdmissionRate, memory: Mapping[str, Peak], checking: CheckingRate, load: LoadRate
) -> list[tuple[str, str, str, str]]:
    calm_pause, pause = (
        f"{1000 * each:.1f}" for each in (load.calm_pause_seconds, load.longest_pause_seconds)
    )
    worst = max(peak.times for peak in memory.values())
    return [
        (
            "admission, messages per CPU second (plain: Ed25519 alone)",
            f"{rate.bare_per_second.median:.0f}",
            f"{rate.admitted_per_second.median:.0f}",
            _spread(rate.share, ".1%"),
        ),
        (
            "verification, ms per rollout (plain: stock scorer in process)",
            f"{1000 * checking.in_process_seconds.median:.3f}",
            f"{1000 * checking.jailed_seconds.median:.3f}",
            _spread(checking.cost, ".2f"),
        ),
        (
            f"honest rollouts per second (safe: {load.offered_answers_per_second:.0f} hostile answers/s)",
            f"{load.calm_per_second.median:.1f}",
            f"{load.loaded_per_second.median:.1f}",
            _spread(load.share, ".1%"),
        ),
        ("longest pause of the event loop, ms", calm_pause, pause, "-"),
        ("peak memory over message size, worst of all kinds", "-", "-", f"{worst:.2f}"),
    ]


def _spread(spread: Spread, form: str) -> str:
    """Return the median of several pairs, with the least and the greatest."""
    return f"{spread.median:{form}} ({spread.least:{form}} to {spread.greatest:{form}})"


@command(app)
def ledger(
    common: Common,
    accounts: Annotated[
        int | None,
        typer.Option(
            "--accounts",
            min=16,
            max=200_000,
            help="Measure every step of settlement with this number of accounts.",
        ),
    ] = None,
) -> None:
    """Measure the gas of the ledger's transactions, and compare it with targets and with rl-swarm.

    Runs the real contracts on an embedded chain, for a few seconds; with 100,000 accounts for some minutes.
    """
    from dataclasses import asdict

    from sapo_client.bench import ledger as bench

    if accounts is not None:
        _measure_accounts(common, accounts)
        return

    gas = bench.ledger_gas()
    document = {
        "format": "sapo/bench/ledger/1",
        **asdict(gas),
        "targets": {
            "bind": bench.BIND_TARGET,
            "epoch": bench.EPOCH_TARGET,
            "claim": bench.CLAIM_TARGET,
        },
        "rl_swarm": {"first_submission": bench.RL_SWARM_FIRST, "later_submission": bench.RL_SWARM_LATER},
    }
    columns = ("transaction", "gas", "target", "of target", "rl-swarm", "of rl-swarm")
    common.output.emit(document, Grid(columns, list(_gas_rows(gas))))


def _measure_accounts(common: Common, accounts: int) -> None:
    from dataclasses import asdict

    from sapo_client.bench.ledger import CLAIM_TARGET, EPOCH_TARGET
    from sapo_client.bench.settlement import DATA_TARGET, PROOF_TARGET, accounts_cost

    cost = accounts_cost(accounts)
    targets = {"data": DATA_TARGET, "proof": PROOF_TARGET, "epoch": EPOCH_TARGET, "claim": CLAIM_TARGET}
    document = {"format": "sapo/bench/accounts/1", **asdict(cost), "targets": targets}
    columns = ("step", "bytes", "bytes of pages", "gas", "processor seconds", "MiB above before")
    common.output.emit(document, Grid(columns, [_step_row(step) for step in cost.steps]))


def _step_row(step: StepCost) -> tuple[str, ...]:
    sizes = ("-" if each is None else f"{each}" for each in (step.message_bytes, step.page_bytes, step.gas))
    seconds = "-" if step.seconds is None else f"{step.seconds:.2f}"
    return (
        step.step,
        *sizes,
        seconds,
        "-" if step.grown_mebibytes is None else f"{step.grown_mebibytes:.0f}",
    )


def _gas_rows(gas: LedgerGas) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows; rl-swarm's column is the gas of one submission per account."""
    from sapo_client.bench import ledger as bench

    yield ("deploy everything", f"{gas.deploy}", "-", "-", "-", "-")
    yield _gas_row("bind a node", gas.bind[0], bench.BIND_TARGET, None)
    yield _gas_row("bind a fourth node", gas.bind[-1], bench.BIND_TARGET, None)
    for epoch in gas.epochs:
        what = f"{epoch.accounts} accounts, {epoch.rollouts} rollouts"
        submissions = epoch.accounts * bench.RL_SWARM_LATER
        yield _gas_row(f"post an epoch: {what}", epoch.post, bench.EPOCH_TARGET, submissions)
        yield _gas_row(f"post and make final: {what}", epoch.settled, bench.EPOCH_TARGET, submissions)
    for epoch in gas.epochs:
        which = "first" if epoch.first_claim else "later"
        name = f"{which} claim among {epoch.accounts} accounts"
        yield _gas_row(name, epoch.claim, bench.CLAIM_TARGET, None)


def _gas_row(name: str, gas: int, target: int, rl_swarm: int | None) -> tuple[str, ...]:
    other = ("-", "-") if rl_swarm is None else (f"{rl_swarm}", f"{gas / rl_swarm:.4f}x")
    return (name, f"{gas}", f"{target}", f"{gas / target:.2f}x", *other)


@command(app)
def gossip(
    common: Common,
    peers: Annotated[int, typer.Option("--peers", min=2, max=32, help="Processes.")] = 8,
    messages: Annotated[
        int, typer.Option("--messages", min=1, help="Messages that each process publishes.")
    ] = 40,
    pause: Annotated[
        float, typer.Option("--pause", min=0, help="Seconds between two messages of a process.")
    ] = 0.5,
    message_bytes: Annotated[
        int, typer.Option("--bytes", min=16, max=65536, help="Length of a message.")
    ] = 4096,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of both kinds, in turn.")] = 2,
) -> None:
    """Measure gossip between processes on this machine, and compare it with unmodified py-libp2p.

    Delivery, delay, and processor time for one delivery; nothing leaves the machine.
    """
    from dataclasses import asdict

    from sapo_client.bench.gossip import GossipTerms, gossip_rates

    terms = GossipTerms(peers, messages, pause, message_bytes, rounds)
    rates = gossip_rates(terms)
    rows = [
        (
            rate.kind,
            f"{rate.delivery:.2%}",
            f"{1000 * rate.p50_seconds:.1f}",
            f"{1000 * rate.p99_seconds:.1f}",
            f"{1000 * rate.cpu_seconds:.2f}",
        )
        for rate in rates
    ]
    document = {
        "format": "sapo/bench/gossip/1",
        "terms": asdict(terms),
        "rates": [asdict(rate) for rate in rates],
    }
    columns = ("kind", "delivered", "p50, ms", "p99, ms", "processor ms per delivery")
    common.output.emit(document, Grid(columns, rows))


@command(app)
def endurance(
    common: Common,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the nodes' files.")],
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Length of the run.")] = 20.0,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=16, help="Nodes on this machine.")] = 2,
    epoch_seconds: Annotated[int, typer.Option("--epoch-seconds", min=1, help="Length of an epoch.")] = 10,
    speed: Annotated[
        float, typer.Option("--speed", min=1, help="Speed of the nodes' clock, relative to real time.")
    ] = 1.0,
    model: Annotated[
        str, typer.Option("--model", help="The nodes' policy; a tiny one makes many steps.")
    ] = "bundled",
) -> None:
    """Run a small swarm for a long time; show how its nodes' memory, files and disk grow in the second
    half."""
    from dataclasses import asdict

    from sapo_client.bench.endurance import EnduranceTerms, endure, trends

    terms = EnduranceTerms(
        nodes=nodes, seconds=60 * minutes, speed=speed, epoch_seconds=epoch_seconds, model=model
    )
    samples = endure(folder, terms, lambda _: None)
    found = trends(samples)
    columns = ("node", "figure", "first", "last", "per hour", "per 1,000 steps")
    rows = [
        (t.node, t.figure, t.first, t.last, round(t.per_hour), round(t.per_thousand_steps)) for t in found
    ]
    document = {
        "format": "sapo/bench/endurance/1",
        "samples": [asdict(sample) for sample in samples],
        "trends": [asdict(trend) for trend in found],
    }
    common.output.emit(document, Grid(columns, rows))


bench_train.register(app)
