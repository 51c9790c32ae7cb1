"""Tests of the findings of a user trial of an early tree (commit eae0a53).

They were run against eae0a53, and each was seen to fail there because of its finding (13 at its passphrase);
2, 3 and 11 beside the contracts of that tree, whose client knows no others. The first test of 3 was run there
with its output read, for that tree also stands still when nobody reads it.

Tests here and those named below drive the command line, files and HTTP alone, so they run against any tree.
``SAPO_COMMAND`` names a program that runs another one::

    git worktree add ../old eae0a53
    cat > old-sapo <<'END'
    #!/bin/sh
    export PYTHONPATH=/path/to/old/protocol:/path/to/old/verification:/path/to/old/client
    exec python -c "from sapo_client.cli.app import main; main()" "$@"
    END
    chmod +x old-sapo
    SAPO_COMMAND=$PWD/old-sapo python -m pytest -m "long or not long" tests/client/cli/test_operator_trial.py

====== ===================================================== =================================================
number finding                                               test
====== ===================================================== =================================================
1      the README's join line and the hints do not run       ``test_first_minute.py``: all five
2      nobody says that an account without coins is unpaid   ``test_2...``
3      a node without its chain looks healthy                ``test_3...``; ``node/test_health.py``
4      a hung learner looks healthy                          ``test_4...``; ``node/test_health.py``
5      damaged checkpoints are passed over silently          ``test_5...``; ``node/test_health.py``
6      mistakes end in tracebacks, bugs name no report       ``test_mistakes.py``: those that run `sapo`
7      a taken port is not refused                           ``test_mistakes.py::test_a_port_that_another...``
8      after kill -9 the status is of an earlier stop        ``test_first_minute.py::test_the_hint_after...``
9      a chain's death has no reason and leaves no logs      ``testnet/test_dead_chain.py``
10     a full disk makes a node useless silently             ``test_10...``; ``node/test_health.py``
11     a wrong clock is not reported                        ``test_11...``; ``node/test_health.py``
12     tables are unreadable at 60 columns                   ``test_12...``; ``test_narrow.py``
13     a typing error is told late, a secret is asked early  ``test_entry_point.py::test_a_preset...``,
                                                             ``test_mistakes.py::test_the_manifest_is...``
14     older epochs have no rollouts                         ``test_14...``; ``observe/test_outcomes.py``
15     the device that is shown is the setting               ``test_15...``
====== ===================================================== =================================================

The old tree needs reasoning-gym 0.1.25 and its dependencies on its path: without, it refuses every swarm.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support.ledger import BOB, Contracts, address
from support.nodes import found_now, manifest_of
from support.processes import children_of
from support.sapo_process import SAPO, Run, home_in, runner, trained

from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = pytest.mark.e2e

Join = Callable[..., AbstractContextManager[subprocess.Popen[str]]]

NOBODY: Final = "http://127.0.0.1:9"
"""An endpoint at which nobody answers."""

POLLS: Final = 60
LOOK_SECONDS: Final = 1.0
"""Between two looks at another process: each starts a process, and is no measurement."""


@pytest.fixture
def join(sapo: Run, home: dict[str, str], weekdays: Suite, policy: Path, tmp_path: Path) -> Join:
    """Return a function that runs a node of the folder's swarm, which has no chain unless one was founded."""
    home |= quick(policy)
    return joiner(sapo, home, weekdays, tmp_path)


def quick(policy: Path) -> dict[str, str]:
    """Return the settings of nodes that make quick rounds with a policy."""
    return {
        "SAPO_LEARNER__MODEL": str(policy),
        "SAPO_LEARNER__MAX_NEW_TOKENS": "6",
        "SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0",
    }


def joiner(sapo: Run, home: dict[str, str], weekdays: Suite, folder: Path) -> Join:
    """Return a function that runs a node of the folder's swarm, until it has shown some rounds and beyond."""
    manifest = folder / "swarm.json"

    @contextmanager
    def run(*arguments: str, key: str = "key", rounds: int = 1) -> Iterator[subprocess.Popen[str]]:
        if not manifest.exists():
            manifest.write_text(manifest_to_json(manifest_of(weekdays)))
        sapo("keys", "new", key, "--no-passphrase")
        words = ("join", "--identity", key, "--manifest", "swarm.json", *arguments)
        with trained(words, home, folder, rounds) as process:
            yield process

    return run


@pytest.fixture
def chain(weekdays: Suite, tmp_path: Path) -> Iterator[Contracts]:
    """Return the contracts of the folder's swarm, on a chain that is served."""
    contracts, manifest = found_now(tmp_path, weekdays)
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest))
    yield contracts
    contracts.chain.close()


def ended(process: subprocess.Popen[str]) -> str:
    """End a node with its round; return what it said on standard error."""
    process.send_signal(signal.SIGINT)
    return process.communicate()[1]


def until_unhealthy(sapo: Run, *words: str, polls: int = POLLS) -> str:
    """Query a node's health until it has a finding with this text; return the output."""
    said = ""
    for _ in range(polls):
        done = sapo("status", "--healthy")
        said = done.stdout + done.stderr
        if done.returncode == 7 and all(word in said for word in words):
            return said
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"exit code {done.returncode}; it says: {said}")


def test_2_an_account_without_coins_is_reported_by_every_command(
    join: Join, sapo: Run, chain: Contracts
) -> None:
    url = chain.chain.url
    with join("--rpc", url) as process:
        until_unhealthy(sapo, "holds no coins")
        status = sapo("status")
        ledger = sapo("ledger", "status", "--identity", "key", "--rpc", url, "--manifest", "swarm.json")
        claim = sapo("ledger", "claim", "--identity", "key", "--rpc", url, "--manifest", "swarm.json")
        doctor = sapo("doctor", "--identity", "key", "--rpc", url, "--manifest", "swarm.json")
        terminal = ended(process)
    assert "holds no coins" in terminal
    assert "Sender b'" not in status.stdout + status.stderr
    assert re.search(r"^registered +no$", ledger.stdout, flags=re.MULTILINE)
    assert re.search(r"^last error +\S.*coins", ledger.stdout, flags=re.MULTILINE), ledger.stdout
    assert (claim.returncode, "is not registered" in claim.stderr) == (6, True), claim.stderr
    assert (doctor.returncode, "holds no coins" in doctor.stdout) == (7, True), doctor.stdout


@pytest.mark.long
def test_3_a_node_whose_chain_falls_silent_is_not_healthy(
    join: Join, sapo: Run, weekdays: Suite, tmp_path: Path
) -> None:
    """It is reported once an epoch has passed since then; here the node's output is not read."""
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=60)
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest))
    with join("--rpc", contracts.chain.url) as process:
        port = contracts.chain.vanish()
        until_unhealthy(sapo, "the chain has not answered for", polls=4 * POLLS)
        assert "error: the chain has not answered for" in ended(process)
    contracts.chain.serve_again(port)
    contracts.chain.close()


@pytest.mark.long
def test_3_a_node_that_starts_without_its_chain_trains_and_is_not_healthy(
    join: Join, sapo: Run, weekdays: Suite, tmp_path: Path
) -> None:
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=60)
    contracts.chain.close()
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest))
    with join("--rpc", NOBODY, "--no-ledger") as process:
        until_unhealthy(sapo, "the chain has not answered for", polls=4 * POLLS)
        ended(process)


@pytest.mark.long
def test_4_a_hung_learner_is_not_healthy(join: Join, sapo: Run) -> None:
    with join(rounds=4) as process:
        learner = learner_of(process.pid)
        os.kill(learner, signal.SIGSTOP)
        try:
            until_unhealthy(sapo, "the learner has not answered the call", polls=4 * POLLS)
        finally:
            os.kill(learner, signal.SIGCONT)
        assert "the learner has not answered the call" in ended(process)


def learner_of(node: int) -> int:
    """Return the process of a node's learner."""
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(node)}
    [learner] = [child for child, command in commands.items() if b"learner" in command]
    return learner


@pytest.mark.long
def test_5_damaged_checkpoints_are_reported(join: Join, sapo: Run, home: dict[str, str]) -> None:
    with join(rounds=3) as process:
        ended(process)
    states = list(Path(home["HOME"]).rglob("state.safetensors"))
    assert states
    for state in states:
        content = bytearray(state.read_bytes())
        content[-1] ^= 1
        state.write_bytes(content)
    with join() as process:
        said = until_unhealthy(sapo, "can be read")
        terminal = ended(process)
    for text in (said, terminal):
        assert re.search(r"training began again .* and \d+ steps? (is|are) lost", text), text


FULL_DISK: Final = """
mkdir node && mount -t tmpfs -o size=24m none node || exit 77
{sapo} join --identity key --manifest swarm.json --data-dir node > terminal 2>&1 &
node=$!
for _ in $(seq {polls}); do
  {sapo} status --healthy --data-dir node > told 2>&1
  code=$?
  [ $code = 7 ] && grep -q "nearly full" told && break
  sleep 0.2
done
kill -INT $node && wait $node
echo "status $code, node $?"
"""


@pytest.mark.long
def test_10_a_full_disk_is_reported(
    join: Join, sapo: Run, home: dict[str, str], weekdays: Suite, tmp_path: Path
) -> None:
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest_of(weekdays)))
    sapo("keys", "new", "key", "--no-passphrase")
    script = FULL_DISK.format(sapo=shlex.quote(SAPO), polls=POLLS)
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    argv = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(argv, cwd=tmp_path, env=home, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.stdout.strip() == "status 7, node 130"
    assert "nearly full" in (tmp_path / "terminal").read_text()


@pytest.mark.long
def test_11_a_wrong_clock_is_reported(join: Join, sapo: Run, chain: Contracts) -> None:
    """The chain's latest block is of a time that has not come yet by this machine's clock."""
    chain.chain.now_seconds = time.time() + 150
    chain.chain.send(BOB, address(BOB), b"", value_wei=1)
    with join("--rpc", chain.chain.url) as process:
        until_unhealthy(sapo, "this machine's clock is")
        assert "this machine's clock is" in ended(process)


@contextmanager
def two_nodes(join: Join, sapo: Run) -> Iterator[subprocess.Popen[str]]:
    """Run two nodes; yield the first one, in the folder `first`, once it has rollouts of the second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"/ip4/127.0.0.1/tcp/{free.getsockname()[1]}"
    with join("--listen", listen, "--data-dir", "first") as first:
        peer = json.loads(sapo("id", "--identity", "key", "--json").stdout)["peer_id"]
        meets = ("--bootstrap", f"{listen}/p2p/{peer}", "--data-dir", "second")
        with join(*meets, key="other", rounds=3):
            for _ in range(POLLS):
                if json.loads(sapo("status", "--json", "--data-dir", "first").stdout)["accepted"]:
                    break
                time.sleep(LOOK_SECONDS)
            yield first


@dataclass(frozen=True)
class HeardNode:
    """A node that has received rollouts of another one, and was then stopped.

    Attributes:
        folder: in which its directory is `first`.
        sapo: runs commands in the folder.
        peer: the id of the other node.
        status, peers, rollouts: what these commands showed; the last two in a terminal of 60 columns.
    """

    folder: Path
    sapo: Run
    peer: str
    status: str
    peers: str
    rollouts: str


@pytest.fixture(scope="module")
def heard(weekdays: Suite, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> HeardNode:
    """Run two nodes, and look at the first of them."""
    folder = tmp_path_factory.mktemp("heard")
    home = home_in(folder) | quick(policy)
    sapo = runner(home, folder)
    data = ("--data-dir", str(folder / "first"))
    with two_nodes(joiner(sapo, home, weekdays, folder), sapo) as first:
        peer = json.loads(sapo("peers", "--json", *data).stdout)["peers"][0]
        seen = HeardNode(
            folder=folder,
            sapo=sapo,
            peer=peer["peer_id"],
            status=sapo("status", *data).stdout,
            peers=in_terminal(["peers", *data], home, columns=60),
            rollouts=in_terminal(["rollouts", *data], home, columns=60),
        )
        ended(first)
    return seen


def test_12_a_narrow_terminal_shows_whole_words(heard: HeardNode) -> None:
    assert heard.peer in heard.peers, heard.peers
    assert re.search(r"\b[0-9a-f]{64}\b", heard.rollouts), heard.rollouts


def in_terminal(arguments: list[str], home: dict[str, str], *, columns: int) -> str:
    """Run `sapo` in a terminal of so many columns; return what it shows."""
    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [SAPO, *arguments], stdin=child, stdout=child, stderr=child, env=home | {"TERM": "xterm"}
    ):
        os.close(child)
        shown = b""
        while part := _read(main):
            shown += part
    os.close(main)
    return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def test_14_rewards_are_exported_after_their_events_were_deleted(heard: HeardNode) -> None:
    """Rewards of the other node's rollouts, when the events of their time are gone."""
    parquet = pytest.importorskip("pyarrow.parquet")
    for events in (heard.folder / "first").glob("events.jsonl*"):
        events.unlink()
    exported = heard.sapo("export", "parquet", "rollouts.parquet", "--data-dir", "first")
    assert exported.returncode == 0, exported.stderr
    table = parquet.read_table(heard.folder / "rollouts.parquet")
    rewards: list[Any] = table.column("mean_reward").to_pylist()
    assert [reward for reward in rewards if reward is not None]


def test_15_the_device_that_is_used_is_shown(heard: HeardNode) -> None:
    assert re.search(r"^model +\S.* on (cpu|cuda|mps)", heard.status, flags=re.MULTILINE), heard.status
