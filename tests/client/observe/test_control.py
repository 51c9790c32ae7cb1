"""The control API over real sockets: token, host, bounds, draining, and the blocking client."""

from __future__ import annotations

import http.client
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
from support.file_limit import largest_file

from sapo_client.errors import SapoError
from sapo_client.observe import control
from sapo_client.observe.control_client import ControlClient, keep_token
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import HealthReport
from sapo_client.paths import DataDir


@dataclass
class Node:
    """Reports and commands of the API under test."""

    draining: bool = False
    stops: list[bool] = field(default_factory=list)

    def handlers(self) -> control.Handlers:
        return control.Handlers(
            reports={"status": lambda: {"round": 3}, "peers": lambda: ["a", "b"]},
            is_draining=lambda: self.draining,
            stop=self.stops.append,
            metrics=lambda: b"sapo_step 3.0\n",
        )


@asynccontextmanager
async def serving(data: DataDir, node: Node) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(control.serve, data, node.handlers())
        yield port
        nursery.cancel_scope.cancel()


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "node").create()


async def call(function: Callable[[], object]) -> object:
    return await trio.to_thread.run_sync(function)


def raw(port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()


async def test_the_client_reads_every_report(data: DataDir) -> None:
    client = ControlClient(data)
    async with serving(data, Node()):
        assert await call(lambda: client.get("status")) == {"round": 3}
        assert await call(lambda: client.get("peers")) == ["a", "b"]
        assert await call(lambda: client.get_text("metrics")) == "sapo_step 3.0\n"
        assert await call(client.health) == HealthReport(healthy=True, state="running")
        assert await call(client.answers) is True


async def test_a_restarted_node_keeps_the_port_of_its_page(data: DataDir) -> None:
    """An open page looks for the node there; a port that is taken, or unreadable, is another one."""
    async with serving(data, Node()) as first:
        pass
    async with serving(data, Node()) as again:
        assert again == first
        data.control_port.write_text(f"{again}\n")
        async with serving(DataDir(data.root), Node()) as beside:
            assert beside != again
    for damaged in ("", "x", "-1", "65536", "9" * 30):
        data.control_port.write_text(damaged)
        async with serving(data, Node()) as port:
            assert 0 < port < 1 << 16


async def test_pause_and_resume_reach_the_node(data: DataDir) -> None:
    pauses: list[bool] = []
    handlers = replace(Node().handlers(), pause=pauses.append)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(control.serve, data, handlers)
        bearer = {"Authorization": f"Bearer {data.control_token.read_text().strip()}"}
        calls = [("POST", "/pause", bearer), ("POST", "/resume", bearer), ("POST", "/pause", bearer)]
        answers = [await call(lambda sent=sent: raw(port, sent[0], sent[1], b"", sent[2])) for sent in calls]  # type: ignore[misc]
        assert answers == [
            (200, b'{"paused": true}\n'), (200, b'{"paused": false}\n'), (200, b'{"paused": true}\n'),
        ]  # fmt: skip
        assert pauses == [True, False, True]
        refused = [
            ("GET", "/pause", bearer, 405),
            ("GET", "/resume", bearer, 405),
            ("POST", "/pause", {}, 401),
        ]
        for method, path, headers, status in refused:
            assert (await call(lambda: raw(port, method, path, None, headers)))[0] == status  # type: ignore[index]  # noqa: B023
        assert pauses == [True, False, True]
        nursery.cancel_scope.cancel()


async def test_pausing_a_node_that_cannot_pause_is_an_error(data: DataDir) -> None:
    async with serving(data, Node()) as port:
        bearer = {"Authorization": f"Bearer {data.control_token.read_text().strip()}"}
        for path in ("/pause", "/resume"):
            assert (await call(lambda path=path: raw(port, "POST", path, b"", bearer)))[0] == 405  # type: ignore[index,misc]


async def test_stop_reaches_the_node_and_health_fails_while_draining(data: DataDir) -> None:
    node, client = Node(), ControlClient(data)
    async with serving(data, node):
        assert await call(lambda: client.stop(finish=True)) == {"stopping": True, "finish": True}
        node.draining = True
        assert await call(client.health) == HealthReport(healthy=False, state="draining")
        assert await call(client.answers) is False
    assert node.stops == [True]


@pytest.mark.parametrize(("level", "status"), [(FindingLevel.WARNING, 200), (FindingLevel.ERROR, 503)])
async def test_an_error_makes_a_node_unhealthy_and_a_warning_does_not(
    data: DataDir, level: FindingLevel, status: int
) -> None:
    finding = HealthFinding(FindingCode.DISK_LOW, level, "the disk is full", "free some space")
    handlers = replace(Node().handlers(), findings=lambda: (finding,))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(control.serve, data, handlers)
        report = HealthReport(healthy=status == 200, state="running", findings=(finding,))
        assert await call(ControlClient(data).health) == report
        bearer = {"Authorization": f"Bearer {data.control_token.read_text().strip()}"}
        answer = await call(lambda: raw(port, "GET", "/health", None, bearer))
        assert answer == (status, report.model_dump_json().encode() + b"\n")
        nursery.cancel_scope.cancel()


async def test_a_node_that_is_down_is_an_error_with_a_hint(data: DataDir) -> None:
    async with serving(data, Node()):
        address = data.control_address.read_text()
    assert not data.control_address.exists()
    for left_behind in (None, address):  # a clean stop, and an address that a killed node left
        if left_behind:
            data.control_address.write_text(left_behind)
        with pytest.raises(SapoError) as caught:
            ControlClient(data).get("status")
        assert (caught.value.exit_code, str(data.root) in caught.value.text) == (5, True)
        assert "sapo join" in caught.value.hint


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/status", None, {}, 401),
        ("GET", "/status", None, {"Authorization": "Bearer " + "0" * 64}, 401),
        ("GET", "/status", None, {"Authorization": "Bearer \xff"}, 401),
        ("POST", "/stop", b"{}", {}, 401),
        ("GET", "/status", None, {"Host": "rebound.example:80", "Authorization": "TOKEN"}, 403),
        ("GET", "/nothing", None, {"Authorization": "TOKEN"}, 404),
        ("GET", "/../status", None, {"Authorization": "TOKEN"}, 404),
        ("POST", "/status", b"", {"Authorization": "TOKEN"}, 405),
        ("GET", "/stop", None, {"Authorization": "TOKEN"}, 405),
        ("POST", "/stop", b'{"finish": 1}', {"Authorization": "TOKEN"}, 400),
        ("POST", "/stop", b'{"now": true}', {"Authorization": "TOKEN"}, 400),
        ("POST", "/stop", b"[", {"Authorization": "TOKEN"}, 400),
        ("POST", "/stop", b" " * 2000, {"Authorization": "TOKEN"}, 413),
        ("GET", "/" + "a" * 20_000, None, {"Authorization": "TOKEN"}, 431),
        ("GET", "/status?x=1", None, {"Authorization": "TOKEN"}, 200),
    ],
)
async def test_an_improper_request_is_refused(
    data: DataDir, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    node = Node()
    async with serving(data, node) as port:
        bearer = f"Bearer {data.control_token.read_text().strip()}"
        sent = {name: bearer if value == "TOKEN" else value for name, value in headers.items()}
        answer = await call(lambda: raw(port, method, path, body, sent))
        assert isinstance(answer, tuple)
        assert answer[0] == status
        assert await call(lambda: ControlClient(data).get("status")) == {"round": 3}  # and it lives on
    assert node.stops == []


async def test_malformed_requests_and_early_disconnects_do_not_affect_others(data: DataDir) -> None:
    async with serving(data, Node()) as port:
        for noise in (
            b"\x16\x03\x01\x02\x00",
            b"GET /status HTTP/1.1\r\n",
            b"POST /stop HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        ):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(noise)
            await stream.aclose()
        assert await call(lambda: ControlClient(data).get("status")) == {"round": 3}


async def test_too_many_silent_connections_are_closed(data: DataDir) -> None:
    hung_up, closed = list[bytes](), trio.Event()
    async with serving(data, Node()) as port, trio.open_nursery() as nursery:

        async def sit_silent() -> None:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                hung_up.append(await stream.receive_some(1))
                closed.set()

        with trio.fail_after(5):  # before the deadline that ends a silent caller anyway
            for _ in range(control.MAX_CONNECTIONS + 1):
                nursery.start_soon(sit_silent)
            await closed.wait()
        nursery.cancel_scope.cancel()
    assert hung_up == [b""]


def test_the_token_is_private_from_its_creation_and_kept(data: DataDir) -> None:
    token = keep_token(data)
    assert stat.S_IMODE(data.control_token.stat().st_mode) == 0o600
    assert keep_token(data) == token
    data.control_token.chmod(0o644)
    with pytest.raises(SapoError) as caught:
        keep_token(data)
    assert caught.value.exit_code == 8


def test_a_token_cut_off_by_a_full_disk_is_written_again(data: DataDir) -> None:
    """A full disk takes the name of a file and not its content; the next start writes it anew."""
    with largest_file(0), pytest.raises(OSError, match="File too large"):
        keep_token(data)
    assert not data.control_token.exists()
    token = keep_token(data)
    assert (keep_token(data), stat.S_IMODE(data.control_token.stat().st_mode)) == (token, 0o600)
    assert [each for each in data.control_token.parent.iterdir() if ".writing" in each.name] == []
