"""`sapo join` as users run it: two processes that share only a manifest and one address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.events import number, objects
from support.nodes import COMPLETIONS, EXTERNAL_GROUPS, LOCAL_GROUPS, manifest_of, until
from support.sapo_process import SAPO, TIMEOUT_SECONDS

from sapo_client.observe.events import Event, read_events
from sapo_client.paths import DataDir
from sapo_client.testnet.processes import free_ports
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = pytest.mark.e2e

SETTINGS = {
    "SAPO_LEARNER__LOCAL_GROUPS": LOCAL_GROUPS,
    "SAPO_LEARNER__EXTERNAL_GROUPS": EXTERNAL_GROUPS,
    "SAPO_LEARNER__COMPLETIONS": COMPLETIONS,
    "SAPO_LEARNER__MAX_NEW_TOKENS": 6,
    "SAPO_VERIFICATION__AUDIT_SHARE": 1.0,
    "SAPO_VERIFICATION__ACCOUNT_CAP": 1.0,
    "SAPO_VERIFICATION__NEWCOMER_CAP": 1.0,
}


@dataclass
class Machine:
    """One user's home folder with a key, a data directory and at most one running node."""

    home: Path
    manifest: Path
    policy: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    card: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.data = DataDir(self.home / "node")
        self.card = json.loads(self.sapo("keys", "new", "key", "--no-passphrase", "--json"))

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        settings = {name: str(value) for name, value in SETTINGS.items()}
        return kept | settings | {"HOME": str(self.home), "OMP_NUM_THREADS": "1"}

    def sapo(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        command = [SAPO, *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def join(self, *bootstrap: str) -> None:
        """Start the node in the background."""
        command = [
            *(
                SAPO,
                "join",
                "--identity",
                "key",
                "--manifest",
                str(self.manifest),
                "--model",
                str(self.policy),
            ),
            *("--data-dir", str(self.data.root), "--listen", f"/ip4/127.0.0.1/tcp/{self.port}"),
            *(part for address in bootstrap for part in ("--bootstrap", address)),
        ]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    async def end(self, number: signal.Signals) -> int:
        """Send a signal to the node; return its exit code."""
        process = self.process
        assert process is not None
        process.send_signal(number)
        await until(lambda: process.poll() is not None)
        return process.returncode

    def events(self, *names: str) -> list[Event]:
        return [event for event in read_events(self.data.events) if event["event"] in names]

    @property
    def steps(self) -> list[int]:
        return [int(str(event["step"])) for event in self.events("step")]

    @property
    def address(self) -> str:
        """The address of its node; the peer id follows from the key."""
        return f"/ip4/127.0.0.1/tcp/{self.port}/p2p/{self.card['peer_id']}"

    def admitted_from(self, other: Machine) -> list[Event]:
        """Return the events of the other's rollouts that were admitted here."""
        return [event for event in self.events("admitted") if event["node"] == other.card["node_id"]]

    def has_sampled(self) -> bool:
        """Whether a step trained on a group of another account."""
        return any(step["external"] for step in self.events("step"))


@pytest.fixture
def machines(policy: Path, weekdays: Suite, tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest_to_json(manifest_of(weekdays)))
    ports = free_ports(2)
    pair = (
        Machine(tmp_path / "a", manifest, policy, ports[0]),
        Machine(tmp_path / "b", manifest, policy, ports[1]),
    )
    yield pair
    for machine in pair:
        if machine.process is not None and machine.process.poll() is None:
            machine.process.kill()
            machine.process.wait()


async def ask(question: Callable[[], str]) -> Any:
    return json.loads(await trio.to_thread.run_sync(question))


@pytest.mark.long
async def test_two_nodes_join_learn_from_each_other_leave_and_return(
    machines: tuple[Machine, Machine],
) -> None:
    first, second = machines
    first.join()
    second.join(first.address)
    await until(lambda: first.has_sampled() and second.has_sampled())
    for one, other in (machines, machines[::-1]):
        [started] = one.events("node_started")
        assert (started["addresses"], started["step"]) == ([one.address], 0)
        said = (one.home / "log").read_text(encoding="utf-8")
        assert "this account signs:\n  statement   NodeBinding\n" in said
        report = await ask(partial(one.sapo, "peers", "--json", "--data-dir", str(one.data.root)))
        [peer] = report["peers"]
        told = [peer[key].lower() for key in ("node_id", "peer_id", "account")]
        assert told == [other.card[key].lower() for key in ("node_id", "peer_id", "account")]
        sampled = {e["content_id"] for step in one.events("step") for e in objects(step["external"])}
        assert sampled <= {event["content_id"] for event in one.admitted_from(other)}

    # Ctrl-C: the round ends, the policy is saved, and the next start goes on there
    assert await second.end(signal.SIGINT) == 130
    [stopped] = second.events("stopped")
    assert stopped["step"] == second.steps[-1]
    assert any(second.data.checkpoints.glob(f"step-{stopped['step']:010d}"))
    before = len(first.admitted_from(second))
    second.join(first.address)
    await until(lambda: len(second.events("node_started")) == 2)
    assert second.events("node_started")[-1]["step"] == stopped["step"]
    await until(lambda: len(first.admitted_from(second)) > before)
    await until(lambda: second.steps[-1] > number(stopped["step"]))

    # A killed node: the other goes on, and hears it again when it is back
    assert await first.end(signal.SIGKILL) == -signal.SIGKILL
    step, before = second.steps[-1], len(second.admitted_from(first))
    await until(lambda: second.steps[-1] >= step + 3)
    lost_at = first.steps[-1]
    first.join()
    await until(lambda: len(first.events("node_started")) == 2)
    resumed = number(first.events("node_started")[-1]["step"])
    assert 0 < resumed <= lost_at
    await until(lambda: len(second.admitted_from(first)) > before)
    slots = [(event["epoch"], event["slot"]) for event in first.events("published")]
    assert len(slots) == len(set(slots))

    assert [await first.end(signal.SIGTERM), await second.end(signal.SIGHUP)] == [143, 143]
    assert [machine.events("stopped")[-1]["why"] for machine in machines] == ["SIGTERM", "SIGHUP"]
    for machine in machines:
        assert machine.events("service_failed") == []
        assert not machine.data.control_address.exists()
