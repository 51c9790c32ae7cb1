"""Settings of a testnet, and the layout of its directory.

chain/            the embedded chain and the key that deployed the contracts
manifest.json     the swarm's manifest
deployment.json   addresses of its contracts
invitation/       log of the server of its invitation and faucet
testnet.json      running processes: addresses, and the command lines that started them
nodes/ada/        identity.json, config.toml, data/, log.txt
attackers/mallory/  identities/, markers/, attacks.jsonl, log.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.founding.defaults import AUDITORS
from sapo_client.founding.tasks import NANO_TASKS, TaskChoice
from sapo_client.paths import DataDir
from sapo_protocol.terms.islands import IslandTerms

NODE_NAMES: Final = (
    "ada", "bo", "cleo", "dov", "eli", "fay", "gus", "hana", "ivo", "june",
    "kofi", "lena", "milo", "nia", "otto", "pia", "quin", "rosa", "sam", "tess",
)  # fmt: skip
ATTACKER_NAMES: Final = ("mallory", "eve", "trudy", "oscar", "sybil", "craig", "judas", "chuck")

CONTROL_NAME: Final = "alone"
"""Name of the control: a node that trains alone, without the swarm."""

LISTENER: Final = "listener"
"""The identity under which an attacker listens and never attacks."""

LEAD_SECONDS: Final = 15
"""Seconds from choosing the genesis time to genesis: contracts are deployed and nodes started in between."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of `sapo testnet up`.

    Attributes:
        auditors: number of nodes that audit, at most all of them.
        liars: how many of the auditors publish false tallies, after the others have counted.
        quorum: number of auditors that must agree on a root; none for all but a third, rounded down.
        models: `bundled`, a Hugging Face model, or a folder that holds one; nodes take them in turn.
        attack_epoch: epoch in which the attackers start.
        steps: training steps that every node shall take; a run in which one has taken fewer goes on after
            its last epoch, for at most as many epochs again.
        tasks: what the swarm trains on.
        directory: the testnet's directory, which is kept; none for a temporary one.
        keep: leave the swarm running at the end.
        progress: show a live view if standard error is a terminal.
        page: serve a page over all nodes.
        control: run one node beside the swarm that trains alone.
        bond: tokens that an account must bond to count in full, and that each is given; none: no bond.
        islands: how the swarm is divided; none: it is not.
    """

    nodes: int
    attackers: int
    epochs: int
    epoch_seconds: int
    seed: int
    directory: Path | None
    report: Path
    auditors: int = AUDITORS
    liars: int = 0
    quorum: int | None = None
    models: tuple[str, ...] = ("bundled",)
    attack_epoch: int = 0
    steps: int = 0
    tasks: TaskChoice = NANO_TASKS
    keep: bool = False
    progress: bool = True
    page: bool = False
    control: bool = False
    bond: float | None = None
    islands: IslandTerms | None = None

    @property
    def starts_differ(self) -> bool:
        """Whether nodes start from different models."""
        return len(self.models) > 1

    def model_of(self, node: int) -> str:
        """Return the initial model of a node, by its number."""
        return self.models[node % len(self.models)]


@dataclass(frozen=True, slots=True)
class NodeHome:
    """Files of one honest node."""

    name: str
    root: Path

    @property
    def identity(self) -> Path:
        """Its keys."""
        return self.root / "identity.json"

    @property
    def config(self) -> Path:
        """Its settings."""
        return self.root / "config.toml"

    @property
    def data(self) -> DataDir:
        """Its data directory."""
        return DataDir(self.root / "data")

    @property
    def log(self) -> Path:
        """File that holds its output."""
        return self.root / "log.txt"


@dataclass(frozen=True, slots=True)
class AttackerHome:
    """Files of one attacker."""

    name: str
    root: Path

    @property
    def identities(self) -> Path:
        """One identity per kind of attack."""
        return self.root / "identities"

    @property
    def markers(self) -> Path:
        """Folder in which its answers would create files if they were executed."""
        return self.root / "markers"

    @property
    def attacks(self) -> Path:
        """JSON lines with each message that it sent."""
        return self.root / "attacks.jsonl"

    @property
    def log(self) -> Path:
        """File that holds its output."""
        return self.root / "log.txt"


@dataclass(frozen=True, slots=True)
class Layout:
    """The directory of one testnet."""

    root: Path

    @property
    def chain(self) -> Path:
        """Folder of the embedded chain."""
        return self.root / "chain"

    @property
    def chain_log(self) -> Path:
        """File that holds the chain's output."""
        return self.chain / "log.txt"

    @property
    def deployer(self) -> Path:
        """The identity that deployed the contracts and pays for the faucet's gas."""
        return self.chain / "deployer.json"

    @property
    def manifest(self) -> Path:
        """The swarm's manifest."""
        return self.root / "manifest.json"

    @property
    def deployment(self) -> Path:
        """Addresses of the swarm's contracts."""
        return self.root / "deployment.json"

    @property
    def invitation(self) -> Path:
        """Folder of the server of the swarm's invitation and faucet."""
        return self.root / "invitation"

    @property
    def state(self) -> Path:
        """State file of `sapo testnet status` and `down`."""
        return self.root / "testnet.json"

    def node(self, name: str) -> NodeHome:
        """Return the home of an honest node."""
        return NodeHome(name, self.root / "nodes" / name)

    def attacker(self, name: str) -> AttackerHome:
        """Return the home of an attacker."""
        return AttackerHome(name, self.root / "attackers" / name)


def names(base: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return fixed names; a number is appended when they run out."""
    rounds = range(1, count // len(base) + 2)
    return tuple(name if turn == 1 else f"{name}-{turn}" for turn in rounds for name in base)[:count]
