"""A data directory of version 0.1.0: it opens, resumes, and its points are claimed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from support.sapo_process import SAPO, TIMEOUT_SECONDS

from sapo_client import keystore
from sapo_client.config_layers import resolve
from sapo_client.errors import ExitCode
from sapo_client.keystore import Identity
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.manifests import read_manifest
from sapo_client.observe.events import read_events
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import BugReport
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import Account
from sapo_protocol.rollout import parse_rollout
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.reputation.evidence import Evidence, Reputation

pytestmark = pytest.mark.e2e

ARCHIVE: Final = Path(__file__).parents[1] / "data" / "v0.1.0" / "swarm.tar.xz"
MADE_IN: Final = "/tmp/sapo-v010"  # the folder that its configuration names
MADE_WITH_RPC: Final = "http://127.0.0.1:41863"

STEP: Final = 5
EPOCH: Final = 11
NEXT_SLOT: Final = 40
POINTS: Final = 1418
ENVELOPES: Final = 9401
SWARM: Final = "3914272b99c905b1917bd28500d5f4b377090cad1ccb52655e9ee08ca7807b90"
ACCOUNT: Final = "0x468323B848De7F4C20B99cEa389eccfE8C5ED06D"
NOW_SECONDS: Final = 1_795_376_766
"""In the epoch after the last one in which version 0.1.0 ran."""


@dataclass(frozen=True)
class OldSwarm:
    """The unpacked archive, in another folder than the one it was made in."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "nodes/ada/config.toml"

    @property
    def data(self) -> DataDir:
        return DataDir(self.root / "nodes/ada/data")

    @property
    def identity(self) -> Identity:
        return keystore.load(self.root / "nodes/ada/identity.json", PassphraseSource(None))

    def replace(self, old: str, new: str) -> None:
        """Change the configuration, as its operator would."""
        self.config.write_text(self.config.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    def sapo(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command with the node's configuration."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        return subprocess.run(
            [SAPO, *map(str, arguments), "--config", str(self.config)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
            env=environment,
            timeout=TIMEOUT_SECONDS,
        )

    def ask(self, *arguments: object) -> Any:
        """Return what a command prints as JSON."""
        done = self.sapo(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def tables(self) -> dict[str, int]:
        """Return the versions of the database's components."""
        with closing(sqlite3.connect(self.data.database)) as connection:
            return dict(connection.execute("SELECT component, version FROM schema_version"))


@pytest.fixture
def swarm(tmp_path: Path) -> OldSwarm:
    root = tmp_path / "moved"
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(root)
    old = OldSwarm(root)
    old.identity.path.chmod(0o600)
    old.replace(MADE_IN, str(root))
    old.replace('"bundled"', '"./small-model"')
    return old


@contextmanager
def old_chain(swarm: OldSwarm) -> Iterator[str]:
    """Serve the chain of version 0.1.0; its clock goes on where the archive was made."""
    engine = EmbeddedChain(swarm.root / "chain/chain.sqlite", Genesis(DEFAULT_CHAIN_ID, ()), now=clock())
    with closing(Methods(engine)) as methods:
        server = ChainServer(methods, 0)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        swarm.replace(MADE_WITH_RPC, server.url)
        yield server.url
        server.shutdown()
        server.server_close()
        thread.join()


def clock() -> Clock:
    """Return a clock that goes on where the archive was made, whatever day it is today."""
    started = time.monotonic()
    return lambda: NOW_SECONDS + time.monotonic() - started


def test_rollouts_of_an_old_directory_are_exported_and_verified(swarm: OldSwarm, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    assert swarm.ask("export", "rollouts", folder, "--last", 10_000)["rollouts"] == ENVELOPES
    manifest = read_manifest(swarm.data.manifest)
    messages = ((file, parse_envelope(file.read_bytes(), manifest.swarm_id)) for file in folder.iterdir())
    of_others = (file for file, message in messages if str(parse_rollout(message.payload).account) != ACCOUNT)
    steps = swarm.ask("verify", min(of_others))["steps"]
    unseen = {step["number"] for step in steps if step["ok"] is None}
    assert [step["number"] for step in steps if step["ok"]] == [n for n in range(14) if n not in unseen]
    assert unseen == {3, 4, 8, 11, 12, 13}  # what no file can show: time, books, other texts


def test_the_signing_history_of_an_old_directory_is_exported(swarm: OldSwarm, tmp_path: Path) -> None:
    file = tmp_path / "signing.json"
    assert swarm.ask("keys", "signing", "export", file) == [
        {"swarm": SWARM, "account": ACCOUNT, "epoch": EPOCH, "next_slot": NEXT_SLOT, "share": "0/1"}
    ]


def test_reports_of_an_old_directory_are_read(swarm: OldSwarm) -> None:
    status = swarm.ask("status")
    assert (status["step"], status["ledger"]["points"], status["state"]) == (STEP, POINTS, "stopped")
    assert len(swarm.ask("rollouts", "--last", 5)["events"]) == 5


def test_training_resumes_in_an_old_directory(swarm: OldSwarm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(swarm.root)  # the model's path is a relative one
    before = known(swarm)
    with old_chain(swarm):
        swarm.ask("ledger", "claim", "--yes")  # makes blocks: a node signs nothing before it sees a new one
        assert trio.run(node(swarm, steps=2).run) == 0
    events = [event for event in read_events(swarm.data.events) if event["event"] in ("node_started", "step")]
    assert [(event["event"], event["step"]) for event in events[-3:]] == [
        ("node_started", STEP),
        ("step", STEP + 1),
        ("step", STEP + 2),
    ]
    assert known(swarm) == before != {}
    [mark] = swarm.ask("keys", "signing", "export", swarm.root / "signing.json")
    assert (mark["epoch"], mark["next_slot"] > 0) == (EPOCH + 1, True)
    assert swarm.tables() == {
        "certificates": 2,
        "commitments": 1,
        "contributions": 4,
        "envelopes": 3,
        "epoch_count": 2,
        "equivocations": 1,
        "island_counts": 1,
        "origins": 1,
        "pool": 1,
        "reputation": 2,
        "signing": 2,
        "suspensions": 1,
        "taken_slots": 1,
    }


def test_points_of_an_old_directory_are_claimed(swarm: OldSwarm) -> None:
    with old_chain(swarm):
        before = swarm.ask("ledger", "status")
        assert [before[name] for name in ("points granted", "points claimed")] == [POINTS, 0]
        claimed = swarm.ask("ledger", "claim", "--yes")
        assert (claimed["points claimed"], claimed["points claimed in all"]) == (POINTS, POINTS)
        after = swarm.ask("ledger", "status")
    assert [after[name] for name in ("points claimed", "claimable", "waiting to be sent")] == [POINTS, 0, 0]
    assert [before["tokens"], after["tokens"]] == [100.0, 1518.0]


COMMANDS: Final = {
    "signing": (2, ("keys", "signing", "export", "signing.json")),
    "envelopes": (3, ("export", "rollouts", "exported")),
    "certificates": (2, ("verify", "one.envelope")),
}
"""The version that this release of sapo reads, and a command that reads it."""


@pytest.mark.parametrize("component", COMMANDS)
def test_a_data_directory_of_a_later_version_is_refused(swarm: OldSwarm, component: str) -> None:
    version, command = COMMANDS[component]
    [(_, envelope)] = EnvelopeStore(swarm.data.database).latest(1)
    (swarm.root / "one.envelope").write_bytes(envelope)
    with closing(sqlite3.connect(swarm.data.database)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO schema_version VALUES (?, ?)", (component, version + 1))
    before = content(swarm.data.database)
    for done in (swarm.sapo(*command), repaired := swarm.sapo("repair", "--json")):
        assert done.returncode == ExitCode.DATA
        assert done.stderr.splitlines() == [
            f"error: {swarm.data.database} was written by a newer version of sapo: its {component} tables"
            f" have version {version + 1}, and this version of sapo reads up to {version}",
            "hint: install the newest version of sapo, or use another data directory with --data-dir",
        ]
    states = {each["file"]: each["state"] for each in json.loads(repaired.stdout)["files"]}
    assert states[swarm.data.database.name] == "newer release"
    assert content(swarm.data.database) == before


def content(path: Path) -> list[str]:
    """Return the statements that would make a database again."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def known(swarm: OldSwarm) -> dict[Account, Evidence]:
    """Return what the node knows of the other accounts that it audited."""
    reputation = Reputation(swarm.data.database)
    rows = reputation._connection.execute("SELECT DISTINCT account FROM evidence").fetchall()
    accounts = {Account(account) for (account,) in rows} - {Account.from_hex(ACCOUNT)}
    return {account: reputation.evidence(account, EPOCH + 1) for account in accounts}


def node(swarm: OldSwarm, *, steps: int) -> NodeApp:
    """Return the node of the data directory, alone on a simulated network."""
    config, identity = resolve({}, file=swarm.config).config, swarm.identity
    transport = partial(_transport, peer_id_from_key(identity.node_id))
    return NodeApp(
        config=config,
        identity=identity,
        options=RunOptions(steps=steps),
        manifest=read_manifest(swarm.data.manifest),
        data=swarm.data,
        open_transport=transport,
        show=lambda summary: None,
        clock=clock(),
    )


def _transport(peer_id: str, on_bug: BugReport) -> MemoryTransport:
    return MemoryTransport(MemoryHub(), peer_id, on_bug=on_bug)
