"""Eight real nodes and their chain, killed at random times again and again; then a look at what that did.

Run it with ``PYTHONPATH=tests python -m support.kill_storm FOLDER --seconds 600``. What a node signs is read
from the files of all nodes, so that a second signature is found wherever its message went.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.eight import AUDITORS, EPOCH_SECONDS, WORKERS, Eight, eight
from support.events import number

from sapo_client.testnet import bringup
from sapo_client.testnet.processes import kill_group, sapo, spawn, wait_until
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.rollout import parse_rollout

EVERYBODY: Final = (*AUDITORS, *WORKERS)
CHAIN: Final = "chain"
QUIET_EPOCHS: Final = 5
"""After the storm, until the last epoch of it was settled."""


@dataclass
class Storm:
    """Kills processes of a swarm and starts them again.

    Attributes:
        mean_seconds: between two kills.
    """

    net: Eight
    rng: random.Random
    mean_seconds: float
    kills: Counter[str] = field(default_factory=Counter)
    down: dict[str, float] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a node, the auditors as honest ones, or the chain at the port that it had."""
        if name == CHAIN:
            port = self.net.setup.rpc_url.rstrip("/").rpartition(":")[2]
            before = self.net.chain
            argv = before.argv if "--port" in before.argv else (*before.argv, "--port", port)
            self.net.chain = spawn(CHAIN, argv, folder=before.log.parent, log=before.log)
            return
        member, home = self.net.member(name), self.net.member(name).home
        self.net.children[name] = spawn(name, bringup.join_line(member), folder=home.root, log=home.log)

    def blow(self, seconds: float) -> None:
        """Kill a process every few seconds, and start it again after up to ten."""
        end = time.monotonic() + seconds
        strike = time.monotonic() + self.rng.expovariate(1 / self.mean_seconds)
        while (now := time.monotonic()) < end:
            if now >= strike:
                self._strike(now)
                strike = now + self.rng.expovariate(1 / self.mean_seconds)
            self._revive(now)
            time.sleep(0.05)
        self._revive(float("inf"))

    def _strike(self, now: float) -> None:
        name = self.rng.choice([each for each in (*EVERYBODY, CHAIN) if each not in self.down])
        child = self.net.chain if name == CHAIN else self.net.children[name]
        ended = child.exit_code()
        if ended is not None:
            print(f"{name} had ended by itself with {ended}: {child.log_tail()[-600:]}", flush=True)
            self.kills[f"{name} ended by itself"] += 1
        if self.rng.random() < 0.5:
            kill_group(child.pid)
        else:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        child.process.wait()
        self.kills[name] += 1
        self.down[name] = now + self.rng.uniform(0, 10)

    def _revive(self, now: float) -> None:
        for name in [each for each, due in self.down.items() if due <= now]:
            del self.down[name]
            self.start(name)


def contents(paths: Iterable[Path], net: Eight) -> dict[tuple[Any, ...], set[bytes]]:
    """Return what the nodes hold of each place that may be signed once: rollouts and contributions."""
    swarm = net.setup.manifest.swarm_id
    found: dict[tuple[Any, ...], set[bytes]] = defaultdict(set)
    for path in paths:
        with closing(sqlite3.connect(path)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if "heard" in tables:
                for (message,) in connection.execute("SELECT envelope FROM heard"):
                    envelope = parse_envelope(message, swarm)
                    one = parse_rollout(open_payload(envelope, Kind.ROLLOUT))
                    found["rollout", one.account, one.epoch, one.slot].add(bytes(envelope.content_id))
            if "contribution" in tables:
                rows = connection.execute("SELECT kind, account, epoch, turn, content_id FROM contribution")
                for kind, account, epoch, turn, content_id in rows:
                    found[kind, account, epoch, turn].add(content_id)
    return found


def told(net: Eight, *kinds: str) -> dict[str, int]:
    """Return how many events of some kinds all nodes wrote."""
    return dict(Counter(str(event["event"]) for name in EVERYBODY for event in net.events(name, *kinds)))


def twice_published(net: Eight) -> list[tuple[str, int, int]]:
    """Return the slots that a node published with more than one content."""
    found: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for name in EVERYBODY:
        for event in net.events(name, "published"):
            place = (name, int(number(event["epoch"])), int(number(event["slot"])))
            found[place].add(str(event["content_id"]))
    return [place for place, ids in found.items() if len(ids) > 1]


def claimed(net: Eight, rng: random.Random) -> dict[str, list[Any]]:
    """Claim for every worker, killed twice on the way; return the tokens after each whole claim."""
    found: dict[str, list[Any]] = {}
    for name in WORKERS:
        config = ("--config", str(net.member(name).home.config), "--yes", "--json")
        for _ in range(2):
            child = subprocess.Popen(
                sapo("ledger", "claim", *config), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(rng.uniform(1.0, 5.0))
            child.kill()
            child.wait()
        after = []
        for _ in range(2):
            done = subprocess.run(
                sapo("ledger", "claim", *config), capture_output=True, text=True, check=False
            )
            after.append((done.returncode, net.token.balance(net.account(name))))
        found[name] = after
    return found


def report(net: Eight, storm: Storm, rng: random.Random) -> dict[str, Any]:
    """Return what was lost, signed twice, paid twice and blamed."""
    databases = [path for name in EVERYBODY for path in net.member(name).home.data.root.glob("*.sqlite*")]
    databases = [path for path in databases if path.suffix == ".sqlite"]
    held = contents(databases, net)
    roots = net.final_roots()
    pay = {}
    for root in roots:
        paid, worth = net.paid(root.epoch), net.worth(root.epoch)
        short = {str(a): [paid[a], worth[a]] for a in worth if paid[a] != worth[a]}
        pay[root.epoch] = {"total": root.total, "worth": sum(worth.values()), "differ": short}
    before = {name: net.token.balance(net.account(name)) for name in EVERYBODY}
    return {
        "kills": dict(storm.kills),
        "places": len(held),
        "signed_twice": [str(place) for place, ids in held.items() if len(ids) > 1],
        "published_twice": twice_published(net),
        "stakes": {name: str(stake) for name, stake in net.stakes().items()},
        "pay": pay,
        "tokens_before": before,
        "claims": claimed(net, rng),
        "owed": {
            name: sum(net.paid(root.epoch)[net.account(name)] for root in net.final_roots())
            for name in WORKERS
        },
        "events": told(
            net,
            "service_failed",
            "equivocation_proved",
            "own_slot_taken_twice",
            "challenge",
            "checkpoint_failed",
            "policy_reset",
            "learner_restarted",
            "introduction_failed",
            "caught_up",
            "published",
            "node_started",
            "signed_ahead",
            "slot_skipped",
        ),
        "refused": dict(
            Counter(str(event.get("reason")) for name in EVERYBODY for event in net.events(name, "refused"))
        ),
    }


def main() -> None:
    """Run a storm and write its report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=5.0, help="mean seconds between two kills")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with eight(options.folder, quorum=None, lie="") as net:
        storm = Storm(net, rng, options.every)
        net.fund(*AUDITORS)
        for name in EVERYBODY:
            storm.start(name)
        net.wait("all publish", lambda: all(net.events(name, "published") for name in WORKERS))
        print("storm begins", flush=True)
        storm.blow(options.seconds)
        print("quiet", dict(storm.kills), flush=True)
        wait_until(lambda: False, QUIET_EPOCHS * EPOCH_SECONDS)
        found = report(net, storm, rng)
        (options.folder / "storm.json").write_text(json.dumps(found, indent=1, default=str))
        print(json.dumps(found, indent=1, default=str), flush=True)


if __name__ == "__main__":
    main()
