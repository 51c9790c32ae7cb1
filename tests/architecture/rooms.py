"""The rooms of the source tree, their places in the picture, and what imports what between them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from architecture.figures import ROOT, Module, imports, modules


@dataclass(frozen=True)
class Room:
    """A folder of modules, or the part of one that lies directly in it.

    Attributes:
        name: what the picture calls it.
        folder: relative to the tree's root; a file is a room by itself.
        does: what it is for, in a few words.
        band: the package.
        row: in the picture, from the top of the band; imports go downwards.
        column: its left edge, in columns; there are ten.
        span: its width in columns.
    """

    name: str
    folder: str
    does: str
    band: str
    row: int
    column: float
    span: float = 2.5


_CLIENT: Final = "client/sapo_client"
_VERIFICATION: Final = "verification/sapo_verification"

ROOMS: Final = (
    Room("cli", f"{_CLIENT}/cli", "commands", "client", 0, 0, 7.5),
    Room("sapo", "client/sapo", "nodes from Python", "client", 0, 7.5),
    Room("bench", f"{_CLIENT}/bench", "benchmarks", "client", 1, 2.5),
    Room("node", f"{_CLIENT}/node", "one process, opened and run", "client", 1, 7.5),
    Room("lab", f"{_CLIENT}/lab", "experiments", "client", 2, 2.5),
    Room("account", f"{_CLIENT}/account", "commands on a ledger", "client", 1, 5),
    Room("testnet", f"{_CLIENT}/testnet", "a swarm on loopback", "client", 2, 0),
    Room("node/auditing", f"{_CLIENT}/node/auditing", "tallies, roots, disputes", "client", 3, 5),
    Room("founding", f"{_CLIENT}/founding", "contracts on a chain", "client", 3, 0),
    Room("node/training", f"{_CLIENT}/node/training", "rounds, canary", "client", 4, 7.5),
    Room("services", f"{_CLIENT}/services", "units of service managers", "client", 4, 0),
    Room("node/gossip", f"{_CLIENT}/node/gossip", "topics, catch-up", "client", 5, 0, 7.5),
    Room("node/runtime", f"{_CLIENT}/node/runtime", "supervisor, telemetry, clock", "client", 6, 2.5, 7.5),
    Room("dashboard", f"{_CLIENT}/dashboard", "the page in the browser", "client", 7, 5),
    Room("swarm", f"{_CLIENT}/swarm", "libp2p: peers, messages", "client", 8, 0),
    Room("observe", f"{_CLIENT}/observe", "events, metrics, control", "client", 8, 5),
    Room("ledger", f"{_CLIENT}/ledger", "chain, contracts, outbox", "client", 8, 2.5),
    Room("learner", f"{_CLIENT}/learner", "torch: sample and train", "client", 8, 7.5),
    Room("client base", _CLIENT, "settings, keys, paths, errors", "client", 9, 0, 10),
    Room("engine", f"{_VERIFICATION}/engine.py", "receive, verify, draw, observe", "verification", 0, 0, 10),
    Room("admission", f"{_VERIFICATION}/admission", "bytes to admitted rollouts", "verification", 1, 0),
    Room("sampling", f"{_VERIFICATION}/sampling", "pool, sampler, audit queue", "verification", 1, 2.5),
    Room("suites", f"{_VERIFICATION}/suites", "the task families", "verification", 1, 5),
    Room("signing", f"{_VERIFICATION}/signing", "never sign twice", "verification", 1, 7.5),
    Room(
        "verifier", f"{_VERIFICATION}/verifier.py", "the stages of a verification", "verification", 2, 2.5, 5
    ),
    Room("jail", f"{_VERIFICATION}/jail", "sandboxed checkers", "verification", 3, 2.5),
    Room("screens", f"{_VERIFICATION}/screens", "copies, phrases, likelihood", "verification", 3, 5),
    Room("reputation", f"{_VERIFICATION}/reputation", "the weight of accounts", "verification", 3, 7.5),
    Room("tasks", f"{_VERIFICATION}/tasks", "prompts, answers, scores", "verification", 4, 2.5, 5),
    Room("verification base", _VERIFICATION, "types, observers, store", "verification", 5, 0, 10),
    Room(
        "protocol",
        "protocol/sapo_protocol",
        "envelopes, certificates, epochs, rules, trees",
        "protocol",
        0,
        0,
        10,
    ),
)

BY_NAME: Final = {room.name: room for room in ROOMS}
_BASES: Final = {_CLIENT: "client base", _VERIFICATION: "verification base"}
"""Their own modules alone: a new folder in them needs a room."""

_LOOSE: Final = (f"{_CLIENT}/models",)
"""Folders that belong to the base above them."""


@cache
def room_of(root: Path = ROOT) -> Mapping[str, str]:
    """Return the room of every module.

    A room holds the sub-folders that have none of their own.

    Raises:
        LookupError: a folder has no room; ``ROOMS`` needs one.
    """
    return {module.name: _room(module) for module in modules(root)}


def _room(module: Module) -> str:
    by_folder = {room.folder: room.name for room in ROOMS} | _BASES
    path = module.path
    while path:
        is_open = path not in _BASES or module.folder == path or module.folder in _LOOSE
        if path in by_folder and is_open:
            return by_folder[path]
        path = path.rpartition("/")[0]
    raise LookupError(f"{module.path} lies in no room: add its folder to ROOMS in {Path(__file__).name}")


def size_of(room: Room, root: Path = ROOT) -> int:
    """Return how many modules a room holds, those of its sub-folders included."""
    own = room_of(root)
    return sum(
        own[each.name] == room.name and not each.path.endswith("__init__.py") for each in modules(root)
    )


@cache
def arrows(root: Path = ROOT) -> Mapping[tuple[str, str], int]:
    """Return how many imports go from one room to another."""
    room = room_of(root)
    pairs = ((room[name], room[other]) for name, others in imports(root).items() for other in others)
    return Counter(pair for pair in pairs if pair[0] != pair[1])


def needed(root: Path = ROOT) -> set[tuple[str, str]]:
    """Return the arrows that no longer way of arrows replaces; the picture shows these."""
    pairs = set(arrows(root))
    return {
        (source, target)
        for source, target in pairs
        if not any(
            _leads(middle, target, pairs - {(source, target)})
            for start, middle in pairs
            if start == source and middle != target
        )
    }


def _leads(source: str, target: str, pairs: set[tuple[str, str]]) -> bool:
    seen, waiting = set[str](), [source]
    while waiting:
        room = waiting.pop()
        if room == target:
            return True
        if room not in seen:
            seen.add(room)
            waiting += [end for start, end in pairs if start == room]
    return False


def upward(root: Path = ROOT) -> list[tuple[str, str]]:
    """Return the arrows that do not go down in the picture: each is one half of a circle, or will be."""
    order = {"client": 0, "verification": 1, "protocol": 2}
    height = {room.name: (order[room.band], room.row) for room in ROOMS}
    return sorted(pair for pair in arrows(root) if height[pair[0]] >= height[pair[1]])
