"""What a testnet consists of and where each piece lies: one directory, readable by people.

chain/            the embedded chain and the key that deployed the contracts
manifest.json     the swarm's constitution
testnet.json      what runs: processes, addresses, the lines that started them
nodes/ada/        identity.json, config.toml, data/, log.txt
attackers/mallory/  identities/, markers/, attacks.jsonl, log.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.founding.defaults import AUDITORS
from sapo_client.paths import DataDir

NODE_NAMES: Final = (
    "ada", "bo", "cleo", "dov", "eli", "fay", "gus", "hana", "ivo", "june",
    "kofi", "lena", "milo", "nia", "otto", "pia", "quin", "rosa", "sam", "tess",
)  # fmt: skip
ATTACKER_NAMES: Final = ("mallory", "eve", "trudy", "oscar", "sybil", "craig", "judas", "chuck")

LEAD_SECONDS: Final = 15
"""From the choice of a genesis time to that moment: contracts are deployed and nodes started in between."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for.

    Attributes:
        auditors: how many of the nodes audit, at most all of them.
        quorum: how many of them must agree on a root, at most all of them; none is a majority.
        model: `bundled`, a Hugging Face model, or a folder of one; every node starts from it.
        directory: where it lives and what stays there; a passing one where it is none.
        keep: leave the swarm running at the end.
        progress: show a live view, where standard error is a terminal.
    """

    nodes: int
    attackers: int
    epochs: int
    epoch_seconds: int
    seed: int
    directory: Path | None
    report: Path
    auditors: int = AUDITORS
    quorum: int | None = None
    model: str = "bundled"
    keep: bool = False
    progress: bool = True


@dataclass(frozen=True, slots=True)
class NodeHome:
    """Where one honest node lives."""

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
        """What it printed."""
        return self.root / "log.txt"


@dataclass(frozen=True, slots=True)
class AttackerHome:
    """Where one attacker lives."""

    name: str
    root: Path

    @property
    def identities(self) -> Path:
        """One identity per kind of attack."""
        return self.root / "identities"

    @property
    def markers(self) -> Path:
        """Where its answers would create files, if anybody executed them."""
        return self.root / "markers"

    @property
    def attacks(self) -> Path:
        """JSON lines: each message that it sent."""
        return self.root / "attacks.jsonl"

    @property
    def log(self) -> Path:
        """What it printed."""
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
        """What the chain printed."""
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
    def state(self) -> Path:
        """What runs, for `sapo testnet status` and `down`."""
        return self.root / "testnet.json"

    def node(self, name: str) -> NodeHome:
        """The home of an honest node."""
        return NodeHome(name, self.root / "nodes" / name)

    def attacker(self, name: str) -> AttackerHome:
        """The home of an attacker."""
        return AttackerHome(name, self.root / "attackers" / name)


def names(base: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Friendly names, always the same ones; a number is added when they run out."""
    rounds = range(1, count // len(base) + 2)
    return tuple(name if turn == 1 else f"{name}-{turn}" for turn in rounds for name in base)[:count]
