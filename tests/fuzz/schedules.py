"""One fault schedule: the real outbox and sender against the real embedded chain, by a seed.

A node makes wishes while its endpoints time out, fall behind, change their chain, while blocks are
reorganised, fees spike, the pool forgets, clocks jump and its process ends at any request or commit. Then
everything is in order again, and what came of it is held against what was wished.
"""

import itertools
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eth_utils.abi import event_abi_to_log_topic
from support.faulty import Faults, FaultyEndpoint, FaultyOutbox, Killed, Mode, connected
from support.ledger import (
    ALICE,
    BOB,
    FUNDED,
    NOW_SECONDS,
    address,
    found,
    make_root,
    node_key,
    sign,
)
from support.network import ForkingChain, Network

from sapo_client.founding.contracts import Deployment
from sapo_client.ledger.artifact import load
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import Genesis
from sapo_client.ledger.chain.store import LogFilter
from sapo_client.ledger.chain.transaction import SignedTransaction
from sapo_client.ledger.contract import EpochLedgerContract, Registry
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.outbox import EntryState, OutboxEntry
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call
from sapo_protocol import merkle, secp256k1
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, SwarmId
from sapo_verification.signing.database import ApprovalMark, SigningDatabase

CONFIRMATIONS: Final = 3
DEEPEST_REORGANISATION: Final = CONFIRMATIONS - 1
"""A deeper one takes back what was settled: then more confirmations should have been asked for."""

ROUNDS: Final = 40
"""Of faults, before everything is in order again."""

CALM_ROUNDS: Final = 160
"""Enough for every pause to end, for ten transactions and three challenge windows in turn."""

LATER: Final = NOW_SECONDS + 10**9
EPOCHS: Final = (3, 5, 6)
KEYS: Final = (1, 2, 3)
SWARM: Final = SwarmId(bytes(32))

_TOPICS: Final = {
    entry["name"]: "0x" + event_abi_to_log_topic(entry).hex()
    for contract in ("NodeRegistry", "EpochLedger")
    for entry in load(contract).abi
    if entry["type"] == "event"
}


class Ground:
    """A chain with the contracts that each schedule starts from, and another chain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        contracts = found(folder / "chain.sqlite")
        self.deployment: Deployment = contracts.deployment
        contracts.chain.close()
        self.seconds = float(NOW_SECONDS)
        settling = self._open(folder / "chain.sqlite", DEFAULT_CHAIN_ID)
        settling.fill(DEEPEST_REORGANISATION)  # none of them takes back the deployment
        settling.engine.close()
        self.network = self._open(folder / "chain.sqlite", DEFAULT_CHAIN_ID)
        self.foreign = self._open(folder / "foreign.sqlite", DEFAULT_CHAIN_ID + 1)
        self._use_up_nonces()
        self._starts = {net: net.engine.head.block_number for net in (self.network, self.foreign)}

    def reset(self) -> None:
        """Restore the state as after the deployment."""
        for network, head in self._starts.items():
            network.reset(head)

    def close(self) -> None:
        """Close the files."""
        self.network.engine.close()
        self.foreign.engine.close()

    def _open(self, path: Path, chain_id: int) -> Network:
        birth = Genesis(chain_id, tuple(sorted(map(address, FUNDED))))
        return Network(ForkingChain(path, birth, now=lambda: self.seconds))

    def _use_up_nonces(self) -> None:
        """Use nonces on the other chain: a nonce from there would leave a gap here."""
        for nonce in range(len(KEYS)):
            fields = {"nonce": nonce, "to": BOB.address, "value": 1, "gas": 21_000, "gasPrice": 10**12}
            signed = ALICE.sign_transaction({**fields, "chainId": DEFAULT_CHAIN_ID + 1})
            self.foreign.engine.send(bytes(signed.raw_transaction))


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule; a good one has no findings."""

    seed: int
    findings: tuple[str, ...]
    kills: int
    faults: int
    replacements: int
    struck: dict[str, int] = field(hash=False)


class Play:
    """One schedule."""

    def __init__(self, ground: Ground, seed: int, folder: Path) -> None:
        ground.reset()
        self._ground, self._network, self._folder = ground, ground.network, folder
        self._rng = random.Random(seed)
        self._seed = seed
        rate = self._rng.choice((0.0, 0.02, 0.08))
        self.faults = Faults(self._rng, fault_rate=rate, kill_rate=self._rng.choice((0.0, 0.005, 0.02)))
        count = self._rng.choice((1, 2, 3))
        self._endpoints = [FaultyEndpoint(self._network, ground.foreign, self.faults) for _ in range(count)]
        self._seconds, self._skew_seconds = 0.0, 0.0
        self._wishes = self._all_wishes()
        self._made = 0
        self._signatures: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
        self._start()

    def run(self) -> Outcome:
        """Play the whole schedule and return its findings."""
        for _ in range(ROUNDS):
            self._live(self._disturb)
            self._live(self._work)
        self.faults.off = True
        self._mend()
        for _ in range(CALM_ROUNDS):
            self._live(self._make_wishes)
            if not self._live(self._step) and self._made == len(self._wishes):
                break
            self._pass_time()
        return self._outcome()

    # The node under test

    def _start(self) -> None:
        """Start a process from the files on disk."""
        self._outbox = FaultyOutbox(self._folder / "outbox.sqlite", owner="schedule")
        self._outbox.faults = self.faults
        self._signing = SigningDatabase(self._folder / "node.sqlite")
        names = {str(number): endpoint for number, endpoint in enumerate(self._endpoints)}
        rpc = Rpc(
            tuple(names),
            chain_id=DEFAULT_CHAIN_ID,
            connect=lambda name: connected(names[name]),
            clock=lambda: self._seconds,
            now=lambda: self._ground.seconds + self._skew_seconds,
        )
        self._sender = Sender(
            rpc, ALICE, self._outbox, confirmations=CONFIRMATIONS, clock=lambda: self._seconds
        )

    def _live(self, action: Callable[[], bool | None]) -> bool | None:
        """Do one action; if the process ends during it, another one follows."""
        try:
            return action()
        except LedgerError:
            return True
        except Killed:
            self._outbox.close()
            self._start()
            return True

    def _all_wishes(self) -> list[tuple[str, str, Call]]:
        rpc = Rpc(())
        registry = Registry(rpc, self._ground.deployment.registry)
        ledger = EpochLedgerContract(rpc, self._ground.deployment.ledger)
        domain = Domain(DEFAULT_CHAIN_ID, ledger.address)
        posts = [
            (
                "post",
                str(root.epoch),
                Call(ledger.address, ledger.post(EpochApproval(0, root), sign(root, domain))),
            )
            for root in _roots()
        ]
        claims = [
            ("register", str(key), Call(registry.address, registry.register(node_key(key), LATER)))
            for key in KEYS
        ]
        revocation = ("revoke", str(KEYS[0]), Call(registry.address, registry.revoke(node_key(KEYS[0]))))
        finals = [("finalise", str(epoch), Call(ledger.address, ledger.finalise())) for epoch in EPOCHS]
        settled = [wish for pair in zip(posts, finals, strict=True) for wish in pair]
        return [claims[0], *settled[:2], revocation, claims[1], *settled[2:], claims[2]]

    def _work(self) -> None:
        chosen = self._rng.random()
        if chosen < 0.2:
            self._approve()
        elif chosen < 0.45:
            self._make_wishes(1)
        else:
            self._step()

    def _make_wishes(self, more: int | None = None) -> None:
        """Request again all that was requested before, as a starting node does, and some more."""
        wanted = len(self._wishes) if more is None else min(self._made + more, len(self._wishes))
        for kind, key, call in self._wishes[:wanted]:
            self._outbox.add(kind, key, call)
        self._made = wanted

    def _step(self) -> bool:
        return self._sender.step()

    def _approve(self) -> None:
        """Sign one of two roots of an epoch, if the signing database allows it."""
        epoch, archive = self._rng.choice(EPOCHS), self._rng.choice((7, 8))
        root = make_root(epoch, archive=archive)
        self.faults.maybe_kill("APPROVE")
        turn, domain = self._rng.choice((0, 1)), Domain(DEFAULT_CHAIN_ID, self._ground.deployment.ledger)
        mark = ApprovalMark(SWARM, address(ALICE), epoch, turn, root.digest(domain))
        if self._signing.approve(mark):
            self.faults.maybe_kill("APPROVED")
            digest = EpochApproval(turn, root).digest(domain)
            secp256k1.sign(bytes(ALICE.key), digest)
            self._signatures[epoch, turn].add(digest)

    # The world around it

    def _disturb(self) -> None:
        network, rng = self._network, self._rng
        chosen = rng.choices(
            ("mine", "fill", "reorganise", "spike", "fall", "forget", "turn", "wait", "skew", "kill"),
            (8, 5, 3, 1, 2, 1, 4, 4, 1, 1 if self.faults.kill_rate else 0),
        )[0]
        self.faults.count(chosen)
        match chosen:
            case "mine":
                network.mine()
            case "fill":
                network.fill(rng.randint(1, 7))
            case "reorganise":
                network.reorganise(rng.randint(1, DEEPEST_REORGANISATION), rng)
            case "spike":
                network.floor_wei = 3 * 10**9
            case "fall":
                network.floor_wei = 0
            case "forget":
                network.forget()
            case "turn":
                modes = (Mode.GOOD, Mode.GOOD, Mode.SILENT, Mode.STALE, Mode.FOREIGN)
                rng.choice(self._endpoints).turn(rng.choice(modes))
            case "wait":
                self._seconds += rng.choice((1.0, 10.0, 100.0))
                self._ground.seconds += rng.choice((1.0, 100.0))
            case "skew":
                self._skew_seconds = rng.choice((-3600.0, 0.0, 3600.0))
            case "kill":
                raise Killed("between two steps")

    def _mend(self) -> None:
        self._network.floor_wei, self._skew_seconds = 0, 0.0
        for endpoint in self._endpoints:
            endpoint.turn(Mode.GOOD)

    def _pass_time(self) -> None:
        self._network.mine()
        self._network.fill(1)
        self._seconds += 61.0
        self._ground.seconds += 61.0

    # What came of it

    def _outcome(self) -> Outcome:
        mine = [seen for seen in self._network.seen.values() if seen.sender == bytes(address(ALICE))]
        by_nonce: defaultdict[int, list[SignedTransaction]] = defaultdict(list)
        for transaction in mine:
            by_nonce[transaction.nonce].append(transaction)
        entries = self._outbox.entries()
        findings = [
            *self._unfinished(entries),
            *self._records(),
            *(text for nonce, signed in by_nonce.items() for text in _nonce_findings(nonce, signed)),
            *(f"epoch and turn {e}: {len(d)} signatures" for e, d in self._signatures.items() if len(d) > 1),
        ]
        self._outbox.close()
        struck = self.faults.counts
        kills = sum(count for name, count in struck.items() if name.lower().startswith("kill"))
        faults = sum(struck.values())
        replacements = sum(len(signed) - 1 for signed in by_nonce.values())
        return Outcome(self._seed, tuple(findings), kills, faults, replacements, struck)

    def _unfinished(self, entries: list[OutboxEntry]) -> list[str]:
        left = [entry for entry in entries if entry.state is not EntryState.CONFIRMED]
        words = [f"{entry.kind} {entry.key} is {entry.state}: {entry.note}" for entry in left]
        return words + ([f"{len(entries)} wishes kept"] if len(entries) != len(self._wishes) else [])

    def _records(self) -> list[str]:
        """Yield findings unless the chain holds every request exactly once, and nothing else."""
        deployment = self._ground.deployment
        keys = [bytes(node_key(number)) for number in KEYS]
        wanted = {
            (deployment.registry, "NodeRegistered"): Counter(keys),
            (deployment.registry, "NodeRevoked"): Counter(keys[:1]),
            (deployment.ledger, "EpochFinal"): Counter(epoch.to_bytes(32, "big") for epoch in EPOCHS),
        }
        return [
            f"{event} stands for {dict(found)}"
            for (contract, event), once in wanted.items()
            if (found := Counter(self._recorded(contract, event))) != once
        ]

    def _recorded(self, contract: Account, event: str) -> list[bytes]:
        """Return the keys or epochs of an event: its last topics."""
        everything = LogFilter(0, self._network.engine.head.block_number, ("0x" + contract.hex(),))
        logs = [log["topics"] for log in self._network.engine.logs(everything)]
        return [bytes.fromhex(topics[-1][2:]) for topics in logs if topics[0] == _TOPICS[event]]


def play(ground: Ground, seed: int) -> Outcome:
    """Play one schedule from files of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return Play(ground, seed, Path(folder)).run()


def _roots() -> Iterator[EpochRoot]:
    """Return epoch roots, each of which adds to the one before."""
    base_root = merkle.EMPTY_ROOT
    for epoch in EPOCHS:
        root = make_root(epoch, base_root=base_root)
        base_root = root.cumulative_root
        yield root


def _nonce_findings(nonce: int, signed: list[SignedTransaction]) -> list[str]:
    """Return the requests signed with one nonce: one call, each time for at least a tenth more."""
    calls = {(one.to, one.data, one.value) for one in signed}
    ordered = sorted(signed, key=lambda one: one.max_fee_wei)
    steps = itertools.pairwise(ordered)
    cheap = any(
        10 * after.max_fee_wei < 11 * before.max_fee_wei or 10 * after.tip_wei < 11 * before.tip_wei
        for before, after in steps
    )
    foreign = any(one.chain_id != DEFAULT_CHAIN_ID for one in signed)
    findings = [f"nonce {nonce} was signed for {len(calls)} calls"] if len(calls) > 1 else []
    findings += [f"nonce {nonce} was replaced for too little"] if cheap else []
    return findings + ([f"nonce {nonce} was signed for another chain"] if foreign else [])
