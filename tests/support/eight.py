"""Eight nodes as processes over libp2p, on a chain in its own process: four are auditors, one of them lies.

The four others answer tasks, each a different number per epoch; the auditors give no answers, so that they
earn nothing and nothing depends on when their accounts were registered.
Only nodes with coins can send transactions: at first these are the workers, so it is one of them that
challenges the liar.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support import lying_auditor, weekday_server
from support.events import number

from sapo_client.account import epoch_audit
from sapo_client.config_layers import resolve
from sapo_client.founding.defaults import LIMITS
from sapo_client.keystore import Identity
from sapo_client.ledger.contract import EpochLedgerContract, Token, Vault
from sapo_client.ledger.history import History
from sapo_client.ledger.records import Stake
from sapo_client.ledger.rpc import Rpc
from sapo_client.observe.events import Event, read_events
from sapo_client.testnet import bringup
from sapo_client.testnet.bringup import Member, SwarmSetup
from sapo_client.testnet.plan import Settings
from sapo_client.testnet.processes import ChildProcess, kill_group, spawn, stop, wait_until
from sapo_protocol import merkle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account
from sapo_verification.suites import catalogue

AUDITORS: Final = ("ada", "bo", "cleo", "dov")
LIAR: Final = "dov"
WORKERS: Final = ("eli", "fay", "gus", "hana")

MACHINES: Final = {"eli": 99, "fay": 90, "gus": 80, "hana": 70}
"""Number of machines of which a worker is configured as the first: it has one slot in this many."""

WHOLE_EPOCH: Final = sum(len(range(0, LIMITS.slots_per_epoch, machines)) for machines in MACHINES.values())
"""Points of an epoch in which every worker uses all of its slots."""

EPOCH_SECONDS: Final = 45
PATIENCE_SECONDS: Final = 480.0
"""A hang is a failure; a machine that is busy with other things is none."""


@dataclass
class Eight:
    """The swarm while it runs."""

    setup: SwarmSetup
    deployer: Identity
    lie: str
    chain: ChildProcess
    children: dict[str, ChildProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rpc = Rpc([self.setup.rpc_url])
        self.ledger = EpochLedgerContract(rpc, self.setup.deployment.ledger)
        self.vault = Vault(rpc, self.setup.deployment.vault)
        self.token = Token(rpc, self.setup.deployment.token)

    def member(self, name: str) -> Member:
        """One of the eight."""
        return next(member for member in self.setup.members if member.home.name == name)

    def account(self, name: str) -> Account:
        """Return the account of a member."""
        return self.member(name).identity.account

    def start(self, *names: str) -> None:
        """Start nodes in their data directories; the liar runs its own program."""
        for name in names:
            member, home = self.member(name), self.member(name).home
            argv = bringup.join_line(member)
            if name == LIAR:
                program = (sys.executable, lying_auditor.__file__, self.lie, str(WHOLE_EPOCH))
                argv = (*program, *argv[argv.index("join") :])
            self.children[name] = spawn(name, argv, folder=home.root, log=home.log)

    def kill(self, name: str) -> None:
        """Kill a node."""
        child = self.children.pop(name)
        kill_group(child.pid)
        child.process.wait()

    def fund(self, *names: str) -> None:
        """Coins for nodes that had none."""
        bringup.fund(self.setup, self.deployer, [self.member(name).identity for name in names])

    def stakes(self) -> dict[str, Stake]:
        """Return the bond of every auditor."""
        return {name: self.vault.stake(self.account(name)) for name in AUDITORS}

    def tokens(self) -> dict[str, int]:
        """Return the tokens of every worker."""
        return {name: self.token.balance(self.account(name)) for name in WORKERS}

    def final_roots(self) -> list[EpochRoot]:
        """Return the roots of all final epochs, oldest first."""
        return [record.root for record in History(self.ledger).all()]

    def events(self, name: str, *kinds: str) -> list[Event]:
        """Return the events of some kinds that a node wrote."""
        return [event for event in read_events(self.member(name).home.data.events) if event["event"] in kinds]

    def wait(self, what: str, done: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        came = wait_until(lambda: bool(done()) or bool(self._dead()), PATIENCE_SECONDS)
        dead = [f"{child.name} ended: {child.log_tail()}" for child in self._dead()]
        assert (came, dead) == (True, []), (what, self._last_events())

    def paid(self, epoch: int) -> Counter[Account]:
        """Return the pay of a final epoch, as a worker's stored contributions explain its root."""
        config = resolve(file=self.member(WORKERS[0]).home.config, environment={}).config
        facts: dict[str, Any] = {}

        def is_explained() -> bool:
            facts.update(epoch_audit.audit(config, epoch))
            return bool(facts["verdict"] == epoch_audit.EXPLAINED)

        self.wait(f"epoch {epoch} is explained", is_explained)
        return +Counter({Account.from_hex(row["account"]): row["posted"] for row in facts["accounts"]})

    def worth(self, epoch: int) -> Counter[Account]:
        """The reference: what each account earned by its own account of what it published."""
        counts = {m.identity.account: self._worth(m.home.name, epoch) for m in self.setup.members}
        return +Counter(counts)

    def _worth(self, name: str, epoch: int) -> int:
        rewards = {event["content_id"]: event["mean_reward"] for event in self.events(name, "verified")}
        published = [event for event in self.events(name, "published") if event["epoch"] == epoch]
        return sum(0 < number(rewards[event["content_id"]]) < 1 for event in published)

    def _dead(self) -> list[ChildProcess]:
        return [child for child in self.children.values() if child.exit_code() is not None]

    def _last_events(self) -> dict[str, list[Event]]:
        return {m.home.name: list(read_events(m.home.data.events))[-3:] for m in self.setup.members}


def root_of(points: Mapping[Account, int]) -> bytes:
    """Return the Merkle root over accounts' points."""
    return merkle.sum_root(sorted(points.items()))


@contextmanager
def eight(folder: Path, *, quorum: int | None, lie: str) -> Iterator[Eight]:
    """Yield a founded swarm of which only the chain runs; stop all its processes at the end."""
    settings = Settings(
        nodes=8, attackers=0, epochs=2, epoch_seconds=EPOCH_SECONDS, seed=0, directory=folder, report=folder,
        auditors=len(AUDITORS), quorum=quorum,
    )  # fmt: skip
    layout = bringup.fresh_directory(folder)
    with ExitStack() as stack:
        url = stack.enter_context(weekday_server.serving())
        suite = catalogue.suite("nano", ("calendar_arithmetic",))
        chain, rpc_url, deployer = bringup.start_chain(layout, tied=True)
        stack.callback(stop, [chain], PATIENCE_SECONDS)
        members = bringup.create_members(layout, settings.nodes, settings.auditors)
        setup = bringup.found(settings, layout, suite, rpc_url, deployer, members)
        bringup.write_settings(settings, layout, setup)
        for member in members:
            _set_up_answers(member, url)
        net = Eight(setup, deployer, lie, chain)
        net.fund(*WORKERS)
        stack.callback(lambda: stop(net.children.values(), PATIENCE_SECONDS))
        yield net


def _set_up_answers(member: Member, url: str) -> None:
    """Configure a node to use the server of weekdays, for the slots of its share."""
    name = member.home.name
    endpoint = f"{url}/{'guess' if name in WORKERS else 'shrug'}/v1"
    config = member.home.config.read_text()
    config = config.replace("[swarm]\n", f'[swarm]\nslot_share = "0/{MACHINES.get(name, 99)}"\n')
    config = config.replace("[learner]\n", f'[learner]\nbackend = "endpoint"\nendpoint = "{endpoint}"\n')
    member.home.config.write_text(config)
