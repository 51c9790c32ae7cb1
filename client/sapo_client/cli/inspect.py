"""`sapo status`, `peers`, `rollouts`, `stop`, `id`: inspect and stop a node on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sapo_client.cli.keys import show_identity
from sapo_client.cli.live.formatting import lead_text
from sapo_client.cli.options import Common, IdentityOption, command
from sapo_client.cli.render import Grid, Pairs

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sapo_client.errors import SapoError
    from sapo_client.observe.control_client import NodeSilent
    from sapo_client.observe.health import HealthReport
    from sapo_client.observe.reports import (
        ChangeReport,
        EndpointReport,
        HeldOutReport,
        IslandsReport,
        RolloutReport,
        StatusReport,
    )
    from sapo_client.observe.starting import StartingNode
    from sapo_client.paths import DataDir

    Report = TypeVar("Report", bound=BaseModel)

# Events of a rollout in the event file.
_ID_CHARACTERS = 12
_TO_THE_SECOND = 19

ROLLOUT_EVENTS = ("published", "admitted", "verified", "refused")


def register(app: typer.Typer) -> None:
    """Register the commands."""
    command(app)(status)
    command(app)(peers)
    command(app)(rollouts)
    command(app)(stop)
    command(app, "id")(id_)


def status(
    common: Common,
    healthy: Annotated[
        bool,
        typer.Option(
            "--healthy", help="Print what is wrong; exit 0 if the node is healthy, 7 if not, 5 if it is down."
        ),
    ] = False,
) -> None:
    """Show the node's status and what is wrong with it; if it is down, its last known status."""
    data = common.data()
    if healthy:
        _show_health(common, data)
    report = _status(common, data)
    common.output.emit(report.model_dump(mode="json"), Pairs(_status_rows(report)))


def peers(common: Common) -> None:
    """List the peers that the running node is connected to."""
    from sapo_client.observe.reports import PeersReport

    report = _ask(common.data(), "peers", PeersReport)
    columns = ("peer id", "account", "score", "reputation", "accepted", "refused", "address")
    rows = [
        (peer.peer_id, peer.account, peer.score, peer.reputation, peer.accepted, peer.refused, peer.address)
        for peer in report.peers
    ]
    common.output.emit(report.model_dump(mode="json"), Grid(columns, rows))
    if not rows:
        common.output.note("no peer is connected: `sapo status` says whether that is an error and what to do")


def rollouts(
    common: Common,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Number of latest rollouts.")] = 20,
) -> None:
    """List the latest rollouts; from the event file if the node is down."""
    from sapo_client.errors import SapoError
    from sapo_client.observe.reports import RolloutsReport

    data = common.data()
    try:
        report = _ask(data, "rollouts", RolloutsReport)
    except SapoError as error:
        if not data.events.exists():
            raise
        common.output.note(f"{error.text}; these rollouts are from its event file")
        _print_rollout_events(common, data, last)
        return
    latest = report.model_copy(update={"rollouts": report.rollouts[-last:]})
    columns = ("content id", "account", "epoch", "slot", "family", "n", "reward", "state")
    common.output.emit(
        latest.model_dump(mode="json"), Grid(columns, [_rollout_row(item) for item in latest.rollouts])
    )


def stop(
    common: Common,
    finish: Annotated[bool, typer.Option("--finish", help="Let the current round end first.")] = False,
) -> None:
    """Stop the running node after it has drained and saved a checkpoint; a node that starts ends at once."""
    from sapo_client.observe.control_client import ControlClient

    answer = ControlClient(common.data()).stop(finish=finish)
    common.output.emit(answer, _stopping(answer))


def _stopping(answer: object) -> str:
    """Return a node's answer to `sapo stop` in words."""
    finishes = isinstance(answer, dict) and answer.get("finish")
    return "stopping after the current round" if finishes else "stopping"


def id_(
    common: Common,
    identity: IdentityOption = None,
) -> None:
    """Show this node's identity: node id, peer id and account."""
    name = common.resolve({"identity": identity}).config.identity
    show_identity(common, name)


def _ask(data: DataDir, name: str, kind: type[Report]) -> Report:
    """Return a parsed report of the running node.

    Raises:
        SapoError: no node runs here, or it has another version (exit code 5).
    """
    from pydantic import ValidationError

    from sapo_client.errors import ExitCode, SapoError
    from sapo_client.observe.control_client import ControlClient

    try:
        return kind.model_validate_json(ControlClient(data).get_text(name))
    except ValidationError as error:
        raise SapoError(
            f"this version cannot read the node's {name} report",
            hint="restart the node after an upgrade: it and this command must have the same version",
            exit_code=ExitCode.NETWORK,
        ) from error


def _show_health(common: Common, data: DataDir) -> None:
    """Print the findings and end the process with the exit code of the node's health."""
    from sapo_client.errors import ExitCode
    from sapo_client.observe.control_client import ControlClient, NodeSilent

    try:
        report = ControlClient(data).health()
    except NodeSilent as error:
        if (awaited := _health_of_awaited(error.starting)) is None:
            raise _why_silent(data, error) from error
        report = awaited
    if common.as_json:
        common.output.emit(report.model_dump(mode="json"))
    elif not common.quiet:
        common.output.emit(None, *(finding.line() for finding in report.findings))
    if report.state != "running":
        raise typer.Exit(ExitCode.NETWORK)
    raise typer.Exit(ExitCode.DONE if report.healthy else ExitCode.VERIFICATION)


def _status(common: Common, data: DataDir) -> StatusReport:
    from sapo_client.errors import SapoError
    from sapo_client.observe.control_client import NodeSilent
    from sapo_client.observe.reports import StatusReport, kept_status

    try:
        return _ask(data, "status", StatusReport)
    except SapoError as error:
        starting = error.starting if isinstance(error, NodeSilent) else None
        kept = kept_status(data)
        if kept is None:
            raise (error if starting is None else starting.error) from error
        common.output.note(f"{_why_down(data, error, starting, kept)}; this is its status of {kept.updated}")
        if starting is None and kept.state == "failed":
            common.output.note(f"hint: {_last_error(data)[1]}")
        awaited = _health_of_awaited(starting)
        return (
            kept
            if awaited is None
            else kept.model_copy(update={"state": "starting", "findings": awaited.findings})
        )


def _health_of_awaited(starting: StartingNode | None) -> HealthReport | None:
    """Return the health of a node whose start waits; none of any other."""
    from sapo_client.observe.health import HealthReport

    if starting is None or starting.waits_for is None:
        return None
    return HealthReport(healthy=False, state="starting", findings=(starting.waits_for.finding,))


def _why_silent(data: DataDir, error: NodeSilent) -> SapoError:
    """Return why a node does not answer: it starts, an error has ended it, or nothing more is known."""
    from sapo_client.errors import SapoError

    if error.starting is not None:
        return error.starting.error
    if not data.last_error.exists():
        return error
    text, hint = _last_error(data)
    return SapoError(
        f"{error.text}: the last one ended with an error: {text}", hint=hint, exit_code=error.exit_code
    )


def _why_down(data: DataDir, error: SapoError, starting: StartingNode | None, kept: StatusReport) -> str:
    """Return why a node does not answer, and the step at which it would resume."""
    if starting is not None:
        return starting.error.text
    if kept.state not in ("killed", "failed"):
        return error.text
    why = "was killed"
    if kept.state == "failed":
        why = f"ended with an error: {_last_error(data)[0]}"
    steps = [int(path.name.rpartition("-")[2]) for path in data.checkpoints.glob("step-*")]
    resumes = f"; its last checkpoint is of step {max(steps)}" if steps else ""
    return f"{error.text}: the last one {why}{resumes}"


def _last_error(data: DataDir) -> tuple[str, str]:
    """Return the error that ended a node, and what to do about it; release 0.1.0 kept the error alone."""
    text, _, hint = data.last_error.read_text(encoding="utf-8").strip().partition("\n")
    return text, hint or f"see {data.log}"


def _status_rows(report: StatusReport) -> list[tuple[str, Any]]:
    refused = [f"{reason} {count}" for reason, count in sorted(report.refused.items())]
    return [
        *_health_rows(report),
        ("state", report.state),
        ("updated", report.updated),
        ("swarm", f"{report.swarm_name} ({report.swarm_id})"),
        ("node id", report.node_id),
        ("peer id", report.peer_id),
        ("account", report.account),
        *([] if report.alone else [("addresses", report.addresses)]),
        ("model", f"{report.model} on {report.device}"),
        ("round", f"{report.round} (epoch {report.epoch}, step {report.step})"),
        *_waiting_rows(report),
        ("reward", _reward_text(report)),
        *_held_out_rows(report.held_out),
        *_exchange_rows(report),
        ("sampled", f"{report.sampled_own} own, {report.sampled_external} of others"),
        ("refused", refused),
        *_ledger_rows(report),
    ]


def _held_out_rows(held_out: HeldOutReport | None) -> list[tuple[str, str]]:
    """Return the results on held-out tasks, if there was a check."""
    if held_out is None:
        return []
    first, check = cell_reward(held_out.reward_first), f"{held_out.items} tasks, step {held_out.step}"
    rows = [("held out", f"{cell_reward(held_out.reward)}, {first} at the first check ({check})")]
    if (copy := held_out.own_alone) is not None:
        lead = lead_text(copy.lead, copy.lead_error)
        made = f"a copy trained on own answers alone since step {copy.step}"
        rows.append(("lead", f"{lead} over {made} ({cell_reward(copy.reward)})"))
    return rows


def _reward_text(report: StatusReport) -> str:
    if report.reward is None:
        return "none yet: no round has ended since the start"
    return f"{cell_reward(report.reward)} now, {cell_reward(report.reward_start)} at the start"


def _waiting_rows(report: StatusReport) -> list[tuple[str, str]]:
    epoch = report.waits_for_epoch
    if report.state != "running" or epoch is None:
        return []
    return [("next round", f"with epoch {epoch}: all slots of epoch {epoch - 1} are used")]


def _ledger_rows(report: StatusReport) -> list[tuple[str, Any]]:
    ledger = report.ledger
    if not ledger.enabled:
        return [("ledger", "off")]
    return [
        ("ledger", _ledger_text(report)),
        ("ledger error", ledger.last_error),
        ("endpoints", [_endpoint_text(endpoint) for endpoint in ledger.endpoints]),
    ]


def _exchange_rows(report: StatusReport) -> list[tuple[str, Any]]:
    """Return the counts of messages that the node exchanged."""
    from sapo_client.observe.reachable import reachable_text

    if report.alone:
        return [("rollouts", f"{report.shared} made, none shared: this node trains alone")]
    return [
        ("peers", report.peers),
        ("reachable", reachable_text(report.reachable, report.router)),
        ("neighbours", neighbours_text(report.neighbours)),
        *([] if report.islands is None else [("islands", islands_text(report.islands))]),
        *([] if report.change is None else [("change", change_text(report.change))]),
        ("pool", report.pool),
        ("rollouts", f"{report.shared} shared, {report.accepted} accepted"),
    ]


def neighbours_text(found: int | None) -> str:
    """Return the status field `neighbours` as text."""
    if found is None:
        return "none are looked for in the local network (swarm.mdns, swarm.listen)"
    return f"{found} {'node' if found == 1 else 'nodes'} of this swarm in the local network"


def islands_text(islands: IslandsReport) -> str:
    """Return the number of islands, its next change, and the islands that this node carries, as text."""
    if islands.count is None:
        return "not known yet: the ledger and the proposals behind its last final epochs are read"
    carried = ", ".join(map(str, islands.carried)) or "none yet"
    text = f"{islands.count}; this node is subscribed to {carried}"
    if not islands.is_known:
        return f"{text} (as last known: this epoch's number is not)"
    if islands.next_count not in (None, islands.count):
        return f"{text}; {islands.next_count} from the next epoch on"
    return text


def change_text(change: ChangeReport) -> str:
    """Return the announced terms, when they begin, and whether the node is ready for them, as text."""
    wait = f"in {change.epochs} {'epoch' if change.epochs == 1 else 'epochs'}"
    if change.trouble is not None:
        return f"{change.name} ({wait}): this node cannot follow yet: {change.trouble}"
    return f"{change.name} ({wait}): this node has them, and will follow them automatically"


def _health_rows(report: StatusReport) -> list[tuple[str, Any]]:
    """Return the findings of a node that runs or is starting; a node that is down has none."""
    if report.state not in ("starting", "running", "paused", "draining"):
        return []
    if not report.findings:
        return [("health", "nothing is wrong")]
    return [(finding.level, finding.line().partition(": ")[2]) for finding in report.findings]


def _ledger_text(report: StatusReport) -> str:
    ledger = report.ledger
    registered = "registered" if ledger.registered else "not registered"
    receipt = ledger.last_receipt or "none yet"
    waiting = f"{ledger.outbox} waiting" + (f" ({ledger.stuck} stuck)" if ledger.stuck else "")
    return f"{registered}, {ledger.points} points, {waiting}, last receipt {receipt}"


def _endpoint_text(endpoint: EndpointReport) -> str:
    block = "no block yet" if endpoint.head is None else f"block {endpoint.head}"
    denied = f", {endpoint.disagreements} answers contradicted by others" if endpoint.disagreements else ""
    return f"{endpoint.name}: {endpoint.trouble or block}{denied}"


def cell_reward(reward: float | None) -> str:
    """Return a mean reward as a table cell."""
    return "-" if reward is None else f"{reward:.2f}"


def _rollout_row(item: RolloutReport) -> tuple[Any, ...]:
    account = "own" if item.own else item.account
    reward = cell_reward(item.reward)
    return (
        item.content_id,
        account,
        item.epoch,
        item.slot,
        item.family,
        item.completions,
        reward,
        item.state,
    )


def _print_rollout_events(common: Common, data: DataDir, last: int) -> None:
    from collections import deque

    from sapo_client.observe.events import read_events

    found = deque((event for event in read_events(data.events) if event["event"] in ROLLOUT_EVENTS), last)
    rows = [
        (
            str(event["time"])[:_TO_THE_SECOND].replace("T", " "),
            event["event"],
            str(event.get("content_id") or "")[:_ID_CHARACTERS],
            str(event.get("account") or "")[:_ID_CHARACTERS],
            event.get("reason"),
        )
        for event in found
    ]
    common.output.emit(
        {"format": "sapo/events/1", "events": list(found)},
        Grid(("time", "event", "content id", "account", "reason"), rows),
    )
    if rows and not common.as_json:
        common.output.note("ids are cut short; with --json they are whole")
