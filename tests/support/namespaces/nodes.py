"""The nodes of a small network: ordinary `sapo join` processes, each in the namespace of its site."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from support.namespaces import kernel
from support.namespaces.ledger_site import CHAIN_PORT, Chain, chain, reached_in
from support.namespaces.plan import NODE_PORT, SERVER_PORT, Site, delays, sites
from support.namespaces.policy_server import policy_servers
from support.namespaces.site_network import SiteNetwork, site_network

from sapo_client import keystore
from sapo_client.bench.endurance import children, resident_bytes
from sapo_client.errors import SapoError
from sapo_client.keystore import Identity
from sapo_client.observe.control_client import ControlClient
from sapo_client.paths import DataDir
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.testnet.plan import NodeHome
from sapo_client.testnet.processes import ChildProcess, kill_group, sapo, spawn, stop, wait_until
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_verification.suites import catalogue

STOP_SECONDS: Final = 120.0
MAX_QUESTIONS: Final = 6
_LOOK_SECONDS: Final = 2.0

_LIMITS: Final = Limits(slots_per_epoch=4096, max_completions=8, points_per_epoch=512)
"""More slots than a node fills in an epoch."""

_SETTINGS: Final = """
identity = {identity}
data_dir = {data}
[swarm]
manifest = {manifest}
listen = ["/ip4/0.0.0.0/tcp/{port}"]
mdns = false
listen_before_signing_seconds = 0.0
[learner]
backend = "endpoint"
endpoint = "http://127.0.0.1:{server}/v1"
local_groups = 1
external_groups = 1
completions = 8
seed = {seed}
[ledger]
{ledger}
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """A swarm and its network.

    Attributes:
        nodes: of which the first is the one that the manifest names to be met.
        behind_routers: share of the nodes to which nobody can connect.
        min_ms: shortest delay between two sites, one way.
        max_ms: longest one.
        group_seconds: that a node takes for a group of answers, about.
        epoch_seconds: length of an epoch.
        guests: places with a public address and no node, after those of the nodes, and near to all of them.
        start_at_once: nodes that start at the same time.
        auditors: numbers of the nodes that audit; none for a swarm without a chain. With a chain its
            endpoint is the last of the guests.
        chain_side: side of a partition on which the chain is; none if both reach it.
    """

    nodes: int = 32
    behind_routers: float = 0.6
    min_ms: float = 50.0
    max_ms: float = 150.0
    group_seconds: float = 20.0
    epoch_seconds: int = 120
    guests: int = 0
    start_at_once: int = 16
    start_seconds: float = 900.0
    seed: int = 0
    auditors: tuple[int, ...] = ()
    chain_side: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One node's files and its identity."""

    home: NodeHome
    identity: Identity

    @property
    def data(self) -> DataDir:
        """Its data directory."""
        return self.home.data

    @property
    def peer_id(self) -> str:
        """Its libp2p peer id."""
        return peer_id_from_key(self.identity.node_id)


@dataclass
class Nodes:
    """The swarm while it runs; a node is known by its number.

    Attributes:
        running: the processes.
        chain: of a swarm with one.
    """

    terms: Terms
    world: SiteNetwork
    places: Sequence[Place]
    manifest: Manifest
    chain: Chain | None = None
    running: dict[int, ChildProcess] = field(default_factory=dict)

    def start(self, *numbers: int) -> None:
        """Start nodes in their data directories; return once each has begun to listen."""
        for number in numbers:
            place = self.places[number]
            argv = self.world.command(number, sapo("join", "--config", str(place.home.config)))
            self.running[number] = spawn(self.name(number), argv, folder=place.home.root, log=place.home.log)
        if not wait_until(lambda: all(map(self._listens, numbers)), self.terms.start_seconds):
            slow = [self.name(number) for number in numbers if not self._listens(number)]
            raise RuntimeError(f"{', '.join(slow)} did not start: {self._tail(numbers)}")

    def kill(self, number: int) -> None:
        """Kill a node."""
        child = self.running.pop(number)
        kill_group(child.pid)
        child.process.wait()
        self.places[number].data.control_address.unlink(missing_ok=True)

    def name(self, number: int) -> str:
        """Return the name of a node's site."""
        return self.world.sites[number].name

    def require_running(self) -> None:
        """Raise if a node that was started has ended.

        Raises:
            RuntimeError: with the end of its log.
        """
        for number, child in self.running.items():
            if child.exit_code() is not None:
                raise RuntimeError(f"{self.name(number)} ended: {child.log_tail()}")

    def wait(self, seconds: float) -> None:
        """Wait for a time in which all nodes must keep running.

        Raises:
            RuntimeError: one ended.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.require_running()
            time.sleep(min(left, _LOOK_SECONDS))

    def ask(self, number: int, report: str) -> Any:
        """Return a node's response to a request of its control API, ``status`` or ``peers``.

        A busy node is asked again, so that one late answer does not end an hour's run.

        Raises:
            SapoError: it answered none of the questions in time.
        """
        client = ControlClient(self.places[number].data)
        for _ in range(MAX_QUESTIONS - 1):
            with suppress(SapoError):
                return kernel.inside(self.world.namespace(number), lambda: client.get(report))
            self.require_running()
        return kernel.inside(self.world.namespace(number), lambda: client.get(report))

    def cpu_seconds(self) -> float:
        """Return the processor time of all running nodes with their children."""
        return sum(self.cpu_by_node().values())

    def cpu_by_node(self) -> dict[int, float]:
        """Return the processor time of each running node with its children, in seconds."""
        return {
            number: sum(map(process_seconds, (child.pid, *children(child.pid))))
            for number, child in self.running.items()
        }

    def reachable_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the nodes to which anybody can connect."""
        return tuple(n for n in range(self.terms.nodes) if not self.world.sites[n].behind_router)

    def largest_bytes(self) -> int:
        """Return the resident memory of the node with the most, with its children."""
        return max(self.resident().values())

    def resident(self) -> dict[int, int]:
        """Return the resident memory of each running node with its children, in bytes."""
        return {
            number: sum(map(resident_bytes, (child.pid, *children(child.pid))))
            for number, child in self.running.items()
        }

    def lowest_score(self) -> float:
        """Return the lowest score that a running node has for another running one."""
        ids = {self.places[number].peer_id for number in self.running}
        return min(
            (
                float(peer["score"])
                for number in self.running
                for peer in self.ask(number, "peers")["peers"]
                if peer["peer_id"] in ids
            ),
            default=0.0,
        )

    def _listens(self, number: int) -> bool:
        self.require_running()
        return self.places[number].data.control_address.exists()

    def _tail(self, numbers: Sequence[int]) -> str:
        return "; ".join(self.running[number].log_tail() for number in numbers)


def process_seconds(pid: int) -> float:
    """Return the processor time of a process, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def swarm(folder: Path, terms: Terms) -> Iterator[Nodes]:
    """Yield a founded swarm of which no node runs yet; end everything afterwards."""
    found = list(sites(terms.nodes, terms.behind_routers, terms.guests))
    places = [_create(folder / site.name) for site in found[: terms.nodes]]
    table = delays(len(found), terms.seed, terms.min_ms, terms.max_ms, guests=terms.guests)
    with ExitStack() as stack:
        founded = None
        if terms.auditors:
            found[-1] = replace(found[-1], side=terms.chain_side)
            founded = stack.enter_context(chain(folder))
            manifest = founded.found(
                [place.identity for place in places],
                [f"/ip4/{site.address}/tcp/{NODE_PORT}" for site in found],
                terms.auditors,
                _suite(),
                terms.epoch_seconds,
            )
        else:
            manifest = _without_chain(terms, found, places)
            (folder / "manifest.json").write_text(manifest_to_json(manifest), encoding="utf-8")
        _configure(folder, terms, found, places)
        world = stack.enter_context(site_network(found, table, terms.seed))
        namespaces = [world.namespace(number) for number in range(terms.nodes)]
        stack.enter_context(policy_servers(namespaces, terms.group_seconds))
        if founded is not None:
            stack.enter_context(reached_in(world.namespace(len(found) - 1), founded.url))
        nodes = Nodes(terms, world, places, manifest, founded)
        stack.callback(lambda: stop(nodes.running.values(), STOP_SECONDS))
        yield nodes


def start_all(nodes: Nodes) -> None:
    """Start every node, some at a time: a start costs seconds of a core."""
    terms = nodes.terms
    for first in range(0, terms.nodes, terms.start_at_once):
        nodes.start(*range(first, min(terms.nodes, first + terms.start_at_once)))


def _create(root: Path) -> Place:
    root.mkdir(parents=True)
    home = NodeHome(root.name, root)
    return Place(home, keystore.create(home.identity, None))


def _suite() -> Suite:
    return catalogue.suite("full", ("calendar_arithmetic",))


def _without_chain(terms: Terms, found: Sequence[Site], places: Sequence[Place]) -> Manifest:
    return Manifest(
        name="namespaces",
        bootstrap=(f"/ip4/{found[0].address}/tcp/{NODE_PORT}/p2p/{places[0].peer_id}",),
        genesis_seconds=int(time.time()),
        epoch_seconds=terms.epoch_seconds,
        suite=_suite(),
        limits=_LIMITS,
    )


def _configure(folder: Path, terms: Terms, found: Sequence[Site], places: Sequence[Place]) -> None:
    """Write every node's configuration."""
    endpoint = f"http://{found[-1].address}:{CHAIN_PORT}"
    for number, place in enumerate(places):
        paths = {
            "identity": place.identity.path,
            "data": place.data.root,
            "manifest": folder / "manifest.json",
        }
        quoted = {name: json.dumps(str(path)) for name, path in paths.items()}
        audits = json.dumps(number in terms.auditors)
        ledger = f'rpc_urls = ["{endpoint}"]\naudit = {audits}' if terms.auditors else ""
        settings = _SETTINGS.format(**quoted, port=NODE_PORT, server=SERVER_PORT, seed=number, ledger=ledger)
        place.home.config.write_text(settings, encoding="utf-8")
