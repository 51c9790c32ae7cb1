"""`sapo status`, `peers`, `rollouts` and `stop` against a served control API, and with the node down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from pydantic import BaseModel
from support.sapo_process import SAPO

from sapo_client.cli.inspect import change_text, islands_text
from sapo_client.locks import Lock, lock
from sapo_client.observe import control
from sapo_client.observe.events import EventLog
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.reports import (
    ChangeReport,
    HeldOutReport,
    IslandsReport,
    LedgerReport,
    OwnAloneReport,
    PeerReport,
    PeersReport,
    RolloutReport,
    RolloutsReport,
    StatusReport,
    keep_status,
)
from sapo_client.observe.starting import AwaitedStart
from sapo_client.paths import DataDir

STATUS = StatusReport(
    state="running", updated="2026-01-01T00:00:00+00:00", version="0.1.0", swarm_name="pond",
    swarm_id="00" * 32, node_id="11" * 32, peer_id="12D3KooWA", account="0x" + "22" * 20,
    addresses=("/ip4/127.0.0.1/tcp/4001",), model="bundled", device="cpu", uptime_seconds=9.5,
    epoch=3, round=2, step=12, reward=0.25, reward_start=0.125, pool=7, peers=1, shared=8, accepted=24,
    sampled_own=8, sampled_external=6, refused={"bad-signature": 2},
    ledger=LedgerReport(
        enabled=True, chain_id=1337, registered=True, outbox=3, last_error="connection refused"
    ),
)  # fmt: skip
PEERS = PeersReport(peers=(PeerReport(peer_id="12D3KooWB", account="0x" + "33" * 20, score=1.5, accepted=4),))
ROLLOUTS = RolloutsReport(
    rollouts=tuple(
        RolloutReport(
            content_id=f"{index:064x}", node_id="44" * 32, account="0x" + "55" * 20, epoch=3, slot=index,
            family="basic_arithmetic", completions=8, reward=0.5, state="verified",
        )
        for index in range(30)
    )
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "node").create()


@asynccontextmanager
async def running(data: DataDir, stops: list[bool] | None = None) -> AsyncIterator[None]:
    """A control API that serves fixed reports."""
    reports: dict[str, BaseModel] = {"status": STATUS, "peers": PEERS, "rollouts": ROLLOUTS}
    orders: list[bool] = [] if stops is None else stops
    handlers = control.Handlers(
        reports={name: partial(report.model_dump, mode="json") for name, report in reports.items()},
        is_draining=lambda: bool(orders),
        stop=orders.append,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, data, handlers)
        yield
        nursery.cancel_scope.cancel()


async def ask(home: dict[str, str], data: DataDir, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        [SAPO, *arguments, "--data-dir", str(data.root)],
        env=home, check=False, capture_stdout=True, capture_stderr=True,
    )  # fmt: skip


async def test_status_of_a_running_node(home: dict[str, str], data: DataDir) -> None:
    async with running(data):
        done = await ask(home, data, "status", "--json")
        text = await ask(home, data, "status")
        healthy = await ask(home, data, "status", "--healthy")
    assert StatusReport.model_validate_json(done.stdout) == STATUS
    assert (done.returncode, done.stderr, healthy.returncode) == (0, b"", 0)
    shown = text.stdout.decode()
    assert "neighbours    none are looked for in the local network (swarm.mdns, swarm.listen)" in shown
    assert "reward        0.25 now, 0.12 at the start" in shown
    assert "registered, 0 points, 3 waiting, last receipt none yet" in shown
    assert "ledger error  connection refused" in shown


async def test_status_shows_held_out_results_and_the_effect_of_others(
    home: dict[str, str], data: DataDir
) -> None:
    copy = OwnAloneReport(step=90, reward=0.42, lead=0.19, lead_error=0.03)
    held_out = HeldOutReport(step=120, items=64, reward=0.61, reward_first=0.3, own_alone=copy)
    not_compared = held_out.model_copy(update={"own_alone": None})
    shown = []
    for found in (None, held_out, not_compared):
        keep_status(data.status, STATUS.model_copy(update={"held_out": found}))
        lines = (await ask(home, data, "status")).stdout.decode().splitlines()
        shown.append([line for line in lines if line.startswith(("held out", "lead"))])
    assert shown == [
        [],
        [
            "held out      0.61, 0.30 at the first check (64 tasks, step 120)",
            "lead          +0.19 ± 0.06 over a copy trained on own answers alone since step 90 (0.42)",
        ],
        ["held out      0.61, 0.30 at the first check (64 tasks, step 120)"],
    ]


async def test_status_of_a_node_that_trains_alone_does_not_claim_to_share(
    home: dict[str, str], data: DataDir
) -> None:
    alone = {"alone": True, "accepted": 0, "ledger": LedgerReport()}
    keep_status(data.status, STATUS.model_copy(update=alone))
    shown = (await ask(home, data, "status")).stdout.decode().splitlines()
    names = [line.split("  ")[0] for line in shown]
    assert "rollouts  8 made, none shared: this node trains alone" in shown
    assert not {"addresses", "peers", "reachable", "neighbours", "pool"} & set(names)
    assert shown[-1] == "ledger    off"


async def test_status_names_the_nodes_of_the_local_network(home: dict[str, str], data: DataDir) -> None:
    shown = []
    for number in (0, 1, 2):
        keep_status(data.status, STATUS.model_copy(update={"neighbours": number}))
        lines = (await ask(home, data, "status")).stdout.decode().splitlines()
        shown += [line for line in lines if line.startswith("neighbours")]
    assert shown == [
        "neighbours    0 nodes of this swarm in the local network",
        "neighbours    1 node of this swarm in the local network",
        "neighbours    2 nodes of this swarm in the local network",
    ]


async def test_status_of_a_node_that_is_down_is_its_last_known_status(
    home: dict[str, str], data: DataDir
) -> None:
    assert (await ask(home, data, "status")).returncode == 5
    keep_status(data.status, STATUS)
    done = await ask(home, data, "status", "--json")
    assert StatusReport.model_validate_json(done.stdout) == STATUS.model_copy(update={"state": "killed"})
    assert b"no node is running" in done.stderr
    assert (await ask(home, data, "status", "--healthy")).returncode == 5


async def test_a_node_that_does_not_answer_yet_is_reported_as_starting(
    home: dict[str, str], data: DataDir
) -> None:
    """Its first start: the lock is taken, and no status was ever written."""
    with lock(data.lock, what="the data directory"):
        answers = [await ask(home, data, "status"), await ask(home, data, "status", "--healthy")]
    for done in answers:
        assert done.returncode == 5
        assert b"a node is starting in" in done.stderr
        assert b"ask again in a minute" in done.stderr


async def test_the_last_status_of_a_waiting_node_gives_the_reason(
    home: dict[str, str], data: DataDir
) -> None:
    keep_status(data.status, STATUS)
    awaited = AwaitedStart(FindingCode.SERVER_AWAY, "http://there does not answer")
    directory = Lock.of_directory(data)
    with directory.held():
        directory.note(awaited.to_note())
        document, shown = await ask(home, data, "status", "--json"), await ask(home, data, "status")
        stopped = await ask(home, data, "stop")
    waiting = {"state": "starting", "findings": (awaited.finding,)}
    assert StatusReport.model_validate_json(document.stdout) == STATUS.model_copy(update=waiting)
    assert shown.stdout.decode().splitlines()[0].split(maxsplit=1) == [
        "error",
        awaited.finding.line().removeprefix("error: "),
    ]
    for done in (document, shown):
        assert b"and waits: http://there does not answer" in done.stderr
    assert (document.returncode, stopped.returncode) == (0, 0)
    assert data.stop_request.exists()


async def test_peers_and_rollouts(home: dict[str, str], data: DataDir) -> None:
    async with running(data):
        peers = await ask(home, data, "peers", "--json")
        table = await ask(home, data, "peers")
        rollouts = await ask(home, data, "rollouts", "--json", "-n", "2")
    assert PeersReport.model_validate_json(peers.stdout) == PEERS
    header, row = table.stdout.decode().splitlines()
    assert header.split()[0] == "peer"
    assert row.split()[:3] == ["12D3KooWB", "0x" + "33" * 20, "1.5"]
    assert RolloutsReport.model_validate_json(rollouts.stdout).rollouts == ROLLOUTS.rollouts[-2:]


async def test_rollouts_of_a_node_that_is_down_come_from_its_event_file(
    home: dict[str, str], data: DataDir
) -> None:
    with EventLog(data.events) as log:
        log.write("round", round=1)
        log.write("published", content_id=b"\x01" * 32)
        log.write("refused", content_id=b"\x02" * 32, account=b"\x03" * 20, reason="bad-signature")
    done = await ask(home, data, "rollouts", "--json")
    events = json.loads(done.stdout)["events"]
    assert [(event["event"], event["content_id"]) for event in events] == [
        ("published", "01" * 32),
        ("refused", "02" * 32),
    ]
    assert b"these rollouts are from its event file" in done.stderr
    shown = (await ask(home, data, "rollouts")).stdout.decode().splitlines()
    assert [line.split()[2:] for line in shown[1:]] == [
        ["published", "01" * 6, "-", "-"],
        ["refused", "02" * 6, "03" * 6, "bad-signature"],
    ]
    assert max(map(len, shown)) <= 80


async def test_stop_sends_a_stop_request_to_the_node(home: dict[str, str], data: DataDir) -> None:
    stops: list[bool] = []
    async with running(data, stops):
        done = await ask(home, data, "stop", "--finish")
        draining = await ask(home, data, "status", "--healthy")
    assert (done.returncode, done.stdout, stops) == (0, b"stopping after the current round\n", [True])
    assert draining.returncode == 5


async def test_a_report_of_another_version_is_an_error(home: dict[str, str], data: DataDir) -> None:
    handlers = control.Handlers(
        reports={"peers": lambda: {"format": "sapo/peers/9"}},
        is_draining=lambda: False,
        stop=list[bool]().append,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, data, handlers)
        done = await ask(home, data, "peers")
        nursery.cancel_scope.cancel()
    assert (done.returncode, b"this version" in done.stderr) == (5, True)


NOT_YET = "not known yet: the ledger and the proposals behind its last final epochs are read"
SUBSCRIBED = "4; this node is subscribed to 1, 3"


@pytest.mark.parametrize(
    ("islands", "text"),
    [
        (
            IslandsReport(),
            NOT_YET,
        ),
        (IslandsReport(count=1, is_known=True, carried=(0,)), "1; this node is subscribed to 0"),
        (IslandsReport(count=4, is_known=True), "4; this node is subscribed to none yet"),
        (
            IslandsReport(count=4, is_known=True, next_count=4, carried=(1, 3)),
            "4; this node is subscribed to 1, 3",
        ),
        (
            IslandsReport(count=4, is_known=True, next_count=2, carried=(1, 3)),
            f"{SUBSCRIBED}; 2 from the next epoch on",
        ),
        (
            IslandsReport(count=2, carried=(1,)),
            "2; this node is subscribed to 1 (as last known: this epoch's number is not)",
        ),
    ],
)
def test_status_shows_the_number_of_islands_and_its_next_change(islands: IslandsReport, text: str) -> None:
    assert islands_text(islands) == text


@pytest.mark.parametrize(
    ("epochs", "trouble", "text"),
    [
        (6, None, "new terms (in 6 epochs): this node has them, and will follow them automatically"),
        (1, "no peer has them", "new terms (in 1 epoch): this node cannot follow yet: no peer has them"),
    ],
)
def test_status_shows_announced_terms_and_whether_the_node_follows_them(
    epochs: int, trouble: str | None, text: str
) -> None:
    change = ChangeReport(name="new terms", activation_epoch=12, epochs=epochs, trouble=trouble)
    assert change_text(change) == text


async def test_a_node_that_has_just_started_says_so(
    home: dict[str, str], data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty table and two dashes told a newcomer nothing."""
    new = STATUS.model_copy(update={"reward": None, "reward_start": None, "round": 0})
    monkeypatch.setitem(globals(), "STATUS", new)
    monkeypatch.setitem(globals(), "PEERS", PeersReport(peers=()))
    async with running(data):
        shown = await ask(home, data, "status")
        peers = await ask(home, data, "peers")
    assert "reward        none yet: no round has ended since the start\n" in shown.stdout.decode()
    assert peers.stderr.decode() == (
        "no peer is connected: `sapo status` says whether that is an error and what to do\n"
    )
