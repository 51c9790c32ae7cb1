"""One page over many nodes, and over an experiment's arms: means over nodes and seeds, attack marks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sapo_client.dashboard.history import FigureHistory, Sample, open_history
from sapo_client.dashboard.many import AttackMark, ManyNodes, ShownNode
from sapo_client.dashboard.pages import DashboardPages
from sapo_client.dashboard.session import Sessions
from sapo_client.errors import SapoError
from sapo_client.lab.live.page import ExperimentPage
from sapo_client.locks import Lock
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.starting import AwaitedStart
from sapo_client.observe.web import WebRequest
from sapo_client.paths import DataDir
from sapo_client.testnet import plan
from sapo_client.testnet.page import attack_marks, shown_nodes
from sapo_client.testnet.plan import Layout


def request(query: str = "hours=2") -> WebRequest:
    return WebRequest("GET", "/", query, {}, b"", has_token=True)


def node(root: Path, *rewards: float, family: str | None = None) -> tuple[DataDir, int]:
    """Return the directory of a node that recorded some rewards, and the start of their interval."""
    data = DataDir(root).create()
    start = int(time.time()) // 60 * 60 - 600
    history: FigureHistory = open_history(data.history)
    names = ["own"] if family is None else ["own", f"own/{family}"]
    history.add(Sample(name, start, reward) for name in names for reward in rewards)
    history.close()
    return data, start // 20 * 20


async def test_the_page_shows_the_mean_over_nodes_and_the_node_alone(tmp_path: Path) -> None:
    first, start = node(tmp_path / "ada", 0.25, 0.75)
    second, _ = node(tmp_path / "bo", 1.0, family="sums")
    alone, _ = node(tmp_path / "alone", 0.25)
    shown = [ShownNode("ada", first), ShownNode("bo", second), ShownNode("alone", alone, "control")]
    marks = [AttackMark(start + 5.0, "mallory: replay")]
    many = ManyNodes("three", lambda: shown, lambda: marks)
    view = await many.view("swarm", "curves", request())
    assert isinstance(view, dict)
    spread = 12.706 * 0.25  # t at 97.5 % with one degree of freedom, times the standard error of 0.5 and 1.0
    assert view["figures"] == {
        "node/ada": [[start, 0.5, pytest.approx(12.706 * 0.25), 2, 1.0]],
        "node/bo": [[start, 1.0, None, 1, 1.0]],
        "node/alone": [[start, 0.25, None, 1, 0.25]],
        "family/sums/bo": [[start, 1.0, None, 1, 1.0]],
        "node": [[start, 0.75, pytest.approx(spread), 2]],
        "control": [[start, 0.25, None, 1]],
    }
    assert view["marks"] == [{"at": start + 5.0, "label": "mallory: replay"}]
    assert await many.view("swarm", "status", request()) is None
    assert await many.view("nobody", "status", request()) is None


async def test_the_mean_does_not_jump_with_the_nodes_that_happen_to_have_a_point(tmp_path: Path) -> None:
    """The last point was that of whichever node had finished a round: the demo's curve seemed to fall."""
    directories = {name: DataDir(tmp_path / name).create() for name in ("ada", "bo")}
    start = int(time.time()) // 60 * 60 - 600
    rewards = {"ada": {0: 0.75, 20: 0.75, 80: 0.75, 100: 0.75}, "bo": {0: 0.25}}
    for name, by_second in rewards.items():
        history = open_history(directories[name].history)
        history.add(Sample("own", start + second, reward) for second, reward in by_second.items())
        history.close()
    many = ManyNodes("two", lambda: [ShownNode(name, data) for name, data in directories.items()], list)
    view = await many.view("swarm", "curves", request())
    assert isinstance(view, dict)
    figures = view["figures"]
    assert isinstance(figures, dict)
    spread = pytest.approx(12.706 * 0.25)
    assert figures["node"] == [
        [start, 0.5, spread, 2],
        [start + 20, 0.5, spread, 2],
        [start + 80, 0.75, None, 1],
        [start + 100, 0.75, None, 1],
    ]


async def test_a_node_that_is_down_keeps_its_curves(tmp_path: Path) -> None:
    data, start = node(tmp_path / "ada", 0.5)
    many = ManyNodes("one", lambda: [ShownNode("ada", data)], list)
    view = await many.view("ada", "curves", request())
    assert isinstance(view, dict)
    assert view["figures"] == {"own": [[start, 0.5, None, 1, 0.5]]}
    with pytest.raises(SapoError, match="the node ada does not answer"):
        await many.view("ada", "status", request())
    stream = many.stream("ada", request())
    assert stream is not None
    assert [part async for part in stream] == []
    assert await many.order("nobody", "claim", b"{}") is None


async def test_a_page_opened_before_its_nodes_answer_continues(tmp_path: Path) -> None:
    """The error of one view ended the whole page server: nobody had opened it so early."""
    data, _ = node(tmp_path / "ada", 0.5)
    pages = DashboardPages(ManyNodes("one", lambda: [ShownNode("ada", data)], list), "token")
    root = Sessions("token").root
    for name, status in (("ada/status", 503), ("ada/curves", 200), ("bo/status", 404)):
        reply = await pages.answer(WebRequest("GET", f"{root}api/{name}", "hours=2", {}, b"", has_token=True))
        assert reply is not None
        assert reply.status == status
        if status == 503:
            found = json.loads(reply.body)
            assert found["error"] == "the node ada does not answer: it is starting, or has stopped"


async def test_a_page_shows_the_reason_for_a_waiting_start(tmp_path: Path) -> None:
    data, _ = node(tmp_path / "ada", 0.5)
    many = ManyNodes("one", lambda: [ShownNode("ada", data)], list)
    directory = Lock.of_directory(data)
    with directory.held():
        directory.note(AwaitedStart(FindingCode.DISK_FULL, "the disk is full").to_note())
        with pytest.raises(SapoError) as caught:
            await many.view("ada", "status", request())
    assert str(caught.value) == "the node ada does not answer: its start waits: the disk is full"


async def test_a_page_that_is_opened_before_its_nodes_have_figures_shows_them_later(tmp_path: Path) -> None:
    """The names of the figures were read once: who opened a demo's page at its start saw none, ever."""
    data, _ = node(tmp_path / "ada")
    many = ManyNodes("one", lambda: [ShownNode("ada", data)], list)
    view = await many.view("swarm", "curves", request())
    assert isinstance(view, dict)
    assert view["figures"] == {"node/ada": []}
    _, start = node(tmp_path / "ada", 0.5, family="sums")
    later = await many.view("swarm", "curves", request())
    own = await many.view("ada", "curves", request())
    assert isinstance(later, dict)
    assert isinstance(own, dict)
    point = [start, 0.5, None, 1, 0.5]
    assert later["figures"] == {
        "node/ada": [point],
        "family/sums/ada": [point],
        "node": [[start, 0.5, None, 1]],
    }
    assert own["figures"] == {"own": [point], "own/sums": [point]}


def test_a_testnet_shows_its_nodes_and_what_attackers_sent(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for name in ("bo", "ada", plan.CONTROL_NAME):
        layout.node(name).data.root.mkdir(parents=True)
    log = layout.attacker("mallory").attacks
    log.parent.mkdir(parents=True)
    sent = {"time": 12.5, "attacker": "mallory", "kind": "wrong_reward", "message": "", "content_id": None}
    log.write_text(f'{json.dumps(sent)}\n{{"time": 13', encoding="utf-8")
    assert [(each.name, each.role) for each in shown_nodes(layout)] == [
        ("ada", "node"),
        ("bo", "node"),
        (plan.CONTROL_NAME, "control"),
    ]
    assert attack_marks(layout) == [AttackMark(12.5, "mallory: wrong reward")]


async def test_arms_are_shown_by_round_also_while_they_run(tmp_path: Path) -> None:
    rows = [
        {"round": 1, "agent": agent, "local": agent / 2, "held_out": {"a": 0.5, "b": 1.0}} for agent in (0, 1)
    ]
    finished = tmp_path / "8-0" / "seed-0" / "rounds.jsonl"
    finished.parent.mkdir(parents=True)
    finished.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    journal = tmp_path / "4-4" / "seed-0" / "work" / "agent-0" / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    entry = {"row": {"round": 1, "agent": 0, "local": 0.75, "held_out": None}, "report": {}, "calls": []}
    journal.write_text(json.dumps(entry) + '\n{"row": {"round"', encoding="utf-8")
    page = ExperimentPage(tmp_path)
    view = await page.view("swarm", "curves", request())
    assert isinstance(view, dict)
    assert view["figures"] == {
        "8-0": [[1, 0.25, None, 1]],
        "node/8-0": [[1, 0.75, None, 1]],
        "4-4": [[1, 0.75, None, 1]],
        "node/4-4": [],
    }
    second = {"row": {"round": 2, "agent": 0, "local": 1.0, "held_out": None}}
    journal.write_text(f"{json.dumps(entry)}\n{json.dumps(second)}\n", encoding="utf-8")
    again = await page.view("swarm", "curves", request())
    assert isinstance(again, dict)
    assert isinstance(again["figures"], dict)
    assert again["figures"]["4-4"] == [[1, 0.75, None, 1], [2, 1.0, None, 1]]
    assert again["now"] == 2
