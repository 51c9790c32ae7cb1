"""A node's reports through the control API: the published schema of `--json`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sapo_client.atomic_files import write_atomically
from sapo_client.observe.findings import HealthFinding
from sapo_client.paths import DataDir

State = Literal["starting", "running", "paused", "draining", "stopped", "failed", "killed"]


class _Report(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EndpointReport(_Report):
    """One RPC endpoint, without the secret parts of its URL."""

    name: str
    head: int | None = None  # number of the last block that it reported
    trouble: str | None = None  # why it is not used
    disagreements: int = 0  # answers that other endpoints contradicted


class LedgerReport(_Report):
    """State of the ledger and of this account on it."""

    enabled: bool = False
    chain_id: int | None = None
    registered: bool = False  # the account claims this node's key on the chain
    outbox: int = 0  # transactions not yet confirmed
    stuck: int = 0  # those of them that have waited for a block for too long
    points: int = 0  # recorded for this account in final epochs
    last_receipt: str | None = None  # time of its block, UTC, ISO 8601
    last_error: str | None = None
    endpoints: tuple[EndpointReport, ...] = ()


class IslandsReport(_Report):
    """The islands of a divided swarm, as this node knows them."""

    count: int | None = None  # none: not known yet
    is_known: bool = False  # else the count is the last known one, of an earlier epoch
    next_count: int | None = None  # of the next epoch, as soon as it is known
    carried: tuple[int, ...] = ()  # islands whose topics this node subscribes to


class ChangeReport(_Report):
    """The next announced terms of the swarm, which are not in force yet."""

    name: str  # description
    activation_epoch: int  # the first in which they are in force
    epochs: int  # until then
    trouble: str | None = None  # why this node cannot follow them yet; none: it will automatically


class RouterReport(_Report):
    """State of port forwarding by the router (UPnP)."""

    state: Literal["waiting", "silent", "refused", "unusable", "mapped"]
    host: str | None = None  # its address in the local network
    port: int | None = None  # its port that is forwarded to the node
    external_host: str | None = None  # its public address, as it reports it
    is_behind_another: bool = False  # whether that address is a private one
    detail: str | None = None  # why it forwards none


class OwnAloneReport(_Report):
    """A copy of the policy that has since been trained on own answers alone, on the same held-out tasks."""

    step: int  # at which the copy was made
    reward: float  # mean
    lead: float  # of the policy: share of tasks that only it gets right, less those that only the copy does
    lead_error: float  # standard error


class HeldOutReport(_Report):
    """Results on tasks that are never trained on."""

    step: int  # of the last check
    items: int  # tasks that were checked then
    reward: float  # mean
    reward_first: float  # of the first check
    own_alone: OwnAloneReport | None = None  # none: no text of others was used


class StatusReport(_Report):
    """Status of a node; the response of `GET /status`."""

    format: Literal["sapo/status/1"] = "sapo/status/1"
    state: State
    updated: str  # UTC, ISO 8601
    version: str
    swarm_name: str
    swarm_id: str
    alone: bool = False  # it trains without a swarm: nothing is shared
    node_id: str
    peer_id: str
    account: str
    addresses: tuple[str, ...] = ()  # multiaddresses that others can dial
    model: str
    device: str
    uptime_seconds: float
    epoch: int
    round: int
    step: int
    reward: float | None = None
    reward_start: float | None = None
    held_out: HeldOutReport | None = None  # none: no check yet, or there are none
    pool: int
    pool_age: float | None = (
        None  # steps of this node since the pool's rollouts arrived, mean; none before a round
    )
    batch_age: float | None = None  # steps since the last batch's own groups were sampled, mean
    ranks: int | None = None  # processes that computed the last step
    waits_for_epoch: int | None = None  # with which the next round begins; none: rounds go on
    peers: int
    reachable: Literal["unknown", "reachable", "unreachable"] = "unknown"  # whether peers can connect to it
    router: RouterReport | None = None  # none: it is not asked to forward a port
    neighbours: int | None = None  # nodes found in the local network; none: not looked for
    shared: int
    accepted: int
    sampled_own: int
    sampled_external: int
    refused: dict[str, int]  # by reason
    ledger: LedgerReport = LedgerReport()
    islands: IslandsReport | None = None  # none: the swarm is not divided
    change: ChangeReport | None = None  # none: none is announced
    findings: tuple[HealthFinding, ...] = ()  # what is wrong, errors first


class PeerReport(_Report):
    """One connected peer, in the response of `GET /peers`."""

    peer_id: str
    node_id: str | None = None  # known after its certificate
    account: str | None = None
    address: str | None = None
    score: float | None = None  # transport
    reputation: float | None = None  # quality of its rollouts, 0..1
    accepted: int = 0
    refused: int = 0


class RolloutReport(_Report):
    """One rollout, in the response of `GET /rollouts`."""

    content_id: str
    node_id: str
    account: str
    epoch: int
    slot: int
    family: str
    completions: int
    reward: float | None = None  # mean of the rewards this node computed
    state: str  # admitted, verified, reinforced, practised, imitated, or refused with its reason
    own: bool = False


class PeersReport(_Report):
    """The response of `GET /peers`."""

    format: Literal["sapo/peers/1"] = "sapo/peers/1"
    peers: tuple[PeerReport, ...]


class RolloutsReport(_Report):
    """The response of `GET /rollouts`: the latest last."""

    format: Literal["sapo/rollouts/1"] = "sapo/rollouts/1"
    rollouts: tuple[RolloutReport, ...]


def keep_status(path: Path, report: StatusReport) -> None:
    """Write the report to the file that `sapo status` reads while the node is down."""
    write_atomically(path, report.model_dump_json(indent=2) + "\n")


def kept_status(data: DataDir) -> StatusReport | None:
    """Return the last report of a node that is down; none if there is none of this version.

    A node writes it at every assessment of its health, and once more when it stops. If the last one is of
    a running node, the node was killed, unless an error ended it or its next start. Version 0.1.0 wrote it
    once, on its way to a clean end.
    """
    try:
        report = StatusReport.model_validate_json(data.status.read_bytes())
    except (OSError, ValidationError):
        return None
    is_stopped = report.state == "stopped" or "findings" not in report.model_fields_set
    ended = "failed" if data.last_error.exists() else "stopped" if is_stopped else "killed"
    return report.model_copy(update={"state": ended})
