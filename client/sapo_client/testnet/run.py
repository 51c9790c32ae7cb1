"""`sapo testnet up`: start the swarm, watch it, stop it, and check its results."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.testnet import bringup, page, plan, report, state
from sapo_client.testnet.attack_results import attack_rows, created_files, may_attack, read_sent
from sapo_client.testnet.attacks import ATTACKS, marker
from sapo_client.testnet.duration import reason_to_go_on
from sapo_client.testnet.ledger_view import ChainView, Claim, EpochRow, points_of
from sapo_client.testnet.node_record import NodeRecord
from sapo_client.testnet.plan import Layout, Settings
from sapo_client.testnet.processes import ChildProcess, python, sapo, spawn, stop
from sapo_client.testnet.tail import EventTail
from sapo_client.testnet.verdict import RunOutcome, failures
from sapo_client.testnet.watch import SwarmSnapshot, View

if TYPE_CHECKING:
    from rich.console import Console

POLL_SECONDS: Final = 0.5
CHAIN_POLL_SECONDS: Final = 5.0
"""Seconds between two queries of the chain, which also serves the nodes' queries."""

POSTING_SECONDS: Final = 60.0
"""Time after the last epoch for two grace periods, a proposal, approvals, a challenge window, a grace period
and two transactions."""

LOGS: Final = "logs"
"""Folder of the report that holds the logs of all processes."""

STOP_SECONDS: Final = 60.0
CLAIM_SECONDS: Final = 120.0


class Interrupted(Exception):
    """SIGINT or SIGTERM was received."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = int(ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED)


def up(settings: Settings, console: Console) -> int:
    """Run a whole testnet; returns the exit code.

    Raises:
        SapoError: it could not be brought up.
    """
    with _directory(settings) as layout, _interruptible() as pending:
        testnet = Testnet(settings, layout, console, pending)
        try:
            testnet.bring_up()
            testnet.watch()
            outcome = testnet.finish()
        except Interrupted as interruption:
            console.print(f"stopping ({interruption})", markup=False)
            return interruption.exit_code
        except SapoError as error:
            testnet.raise_if_chain_died(error)
            raise
        finally:
            testnet.end()
            _keep_logs(layout, settings)
        report.write(outcome, settings, str(testnet.setup.manifest.swarm_id))
        report.show(outcome, settings, console)
        return int(ExitCode.VERIFICATION if failures(outcome) else ExitCode.DONE)


class Testnet:
    """One running testnet."""

    def __init__(
        self, settings: Settings, layout: Layout, console: Console, pending: Callable[[], int | None]
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._console = console
        self._write_line: Callable[[str], None] = self._print
        self._pending = pending
        self._chain: ChildProcess | None = None
        self._nodes: list[ChildProcess] = []
        self._attackers: list[ChildProcess] = []
        self._waiting_attackers: list[tuple[str, int]] = []
        self._beside: list[tuple[ChildProcess, state.Role]] = []
        self._inviting: list[ChildProcess] = []
        self._reported_dead: set[str] = set()
        self._notes: list[str] = []
        self._keeping = False
        names = plan.names(plan.NODE_NAMES, settings.nodes)
        self._records = [NodeRecord(name) for name in names]
        self._tails = [EventTail(layout.node(name).data.events) for name in names]
        self._epochs = settings.epochs
        self._next_chain_poll = 0.0
        self._block: int | None = None
        self._points: Counter[str] = Counter()

    # Bringing up

    def bring_up(self) -> None:
        """Start chain, contracts, nodes and attackers, and fund their accounts.

        Raises:
            SapoError: one of them does not start.
            Interrupted: a signal asks for the end.
        """
        settings, layout, tied = self._settings, self._layout, not self._settings.keep
        self._begin_stage("starting the chain")
        self._chain, rpc_url, deployer = bringup.start_chain(layout, tied=tied)
        members = bringup.create_members(layout, settings.nodes, settings.auditors, settings.liars)
        attackers = bringup.create_attackers(layout, settings.attackers)
        self._begin_stage("deriving the tasks of the suite")
        suite = settings.tasks.suite()
        self._begin_stage("deploying the contracts")
        self.setup = bringup.found(
            settings, layout, suite=suite, rpc_url=rpc_url, deployer=deployer, members=members
        )
        self.chain_view = ChainView(rpc_url, self.setup.manifest)
        bringup.fund(self.setup, deployer, [member.identity for member in members])
        attacking = [one for identities in attackers.values() for one in identities]
        bringup.bond(
            self.setup, deployer, [*(member.identity for member in members), *attacking], settings.bond
        )
        bringup.write_settings(settings, layout, self.setup)
        for member in members:
            argv, home = bringup.join_line(member), member.home
            self._nodes.append(spawn(home.name, argv, folder=home.root, log=home.log, tied=tied))
        self._write_state()
        self._begin_stage(f"started {', '.join(member.home.name for member in members)}")
        bringup.fund(self.setup, deployer, attacking)
        self._waiting_attackers = [(name, number) for number, name in enumerate(attackers)]
        child, link = bringup.start_inviting(layout, self.setup, tied=tied)
        self._inviting.append(child)
        self._start_beside(tied=tied)
        self._write_state()
        self._say(f"another node joins with: sapo join '{link}'")

    def _start_beside(self, *, tied: bool) -> None:
        """Start the page, the control and the invitation server."""
        settings, layout = self._settings, self._layout
        if settings.control:
            self._beside.append((page.start_control(layout, settings, tied=tied), "node"))
        if settings.page:
            self._beside.append((page.start_page(layout, tied=tied), "page"))
            self._say_link()

    def _say_link(self) -> None:
        try:
            self._say(f"watch it in the browser: {page.page_link(self._layout)}")
        except SapoError as error:  # the swarm can do without its page
            self._say(f"there is no page: {error.text}; {error.hint}")

    def _begin_stage(self, stage: str) -> None:
        self._raise_if_interrupted()
        self._say(stage)

    def _start_attackers(self, now: float) -> None:
        """Start the attackers once their epoch has begun and every node has published a rollout."""
        epoch = self._settings.attack_epoch
        if not self._waiting_attackers or not may_attack(self._epoch(now), epoch, self._records):
            return
        for name, number in self._waiting_attackers:
            self._attackers.append(self._start_attacker(name, number))
        if epoch:
            self._say(f"{', '.join(name for name, _ in self._waiting_attackers)} attack from now on")
        self._waiting_attackers = []
        self._write_state()

    def _epoch(self, now: float) -> int:
        manifest = self.setup.manifest
        return int((now - manifest.genesis_seconds) // manifest.epoch_seconds)

    def _start_attacker(self, name: str, number: int) -> ChildProcess:
        layout, settings = self._layout, self._settings
        home = layout.attacker(name)
        argv = python(
            "sapo_client.testnet.attacker", "--manifest", str(layout.manifest), "--home", str(home.root),
            "--seed", str(settings.seed), "--offset", str(number * (len(ATTACKS) // 2)),
            *(part for member in self.setup.members for part in ("--target", member.address)),
        )  # fmt: skip
        return spawn(name, argv, folder=home.root, log=home.log, tied=not settings.keep)

    def _write_state(self) -> None:
        assert self._chain is not None
        entries = [
            state.own_entry(),
            state.entry_of(self._chain, "chain"),
            *(state.entry_of(child, "node") for child in self._nodes),
            *(state.entry_of(child, "attacker") for child in self._attackers),
            *(state.entry_of(child, role) for child, role in self._beside),
            *(state.entry_of(child, "invitation") for child in self._inviting),
        ]
        state.keep(self._layout, state.TestnetState(self.setup.rpc_url, tuple(entries)))

    # Watching

    def watch(self) -> None:
        """Show the swarm until its epochs are over and on the ledger, or the time for posting has passed."""
        with View(self._console, moving=self._settings.progress) as view:
            self._write_line = view.say  # lines go above the live table
            while not self._is_over(now := time.time()):
                self._poll(now)
                self._go_on_if_needed(now)
                end = self._epochs_end()
                view.show(self._snapshot("learning" if now < end else "posting", end - now), time.monotonic())
                time.sleep(POLL_SECONDS)
        self._write_line = self._print

    def _epochs_end(self) -> float:
        manifest = self.setup.manifest
        return manifest.genesis_seconds + self._epochs * manifest.epoch_seconds

    def _is_over(self, now: float) -> bool:
        end = self._epochs_end()
        return now >= end and (now >= end + POSTING_SECONDS or self.chain_view.next_epoch() >= self._epochs)

    def _go_on_if_needed(self, now: float) -> None:
        """Add an epoch once all are over, if a node that still runs lacks steps."""
        if now < self._epochs_end():
            return
        running = [record for record in self._records if record.name not in self._reported_dead]
        if (reason := reason_to_go_on(self._settings, self._epochs, running)) is not None:
            self._epochs += 1
            self._say(reason)

    def _poll(self, now: float) -> None:
        self._raise_if_interrupted()
        self._start_attackers(now)
        self._read_events()
        self._report_deaths()
        if now >= self._next_chain_poll:
            self._next_chain_poll = now + CHAIN_POLL_SECONDS
            self._block = self.chain_view.block()
            self._points = _total_points(self.chain_view.epochs(self._records))

    def _raise_if_interrupted(self) -> None:
        """Raise if a signal asks for the end."""
        if (number := self._pending()) is not None:
            raise Interrupted(number)

    def _read_events(self) -> None:
        for record, tail in zip(self._records, self._tails, strict=True):
            for event in tail.new_events():
                record.add(event)

    def _report_deaths(self) -> None:
        """Report each child process that exited, once; without the chain the run cannot continue."""
        for child in (*self._nodes, *self._attackers, *filter(None, [self._chain])):
            if child.exit_code() is None or child.name in self._reported_dead:
                continue
            self._reported_dead.add(child.name)
            note = f"{child.name} exited with code {child.exit_code()}; its log: {child.log}"
            self._notes.append(note)
            self._say(note)
            if child in self._nodes:
                self._say(f"to start it again: {' '.join(child.argv)}")
        self.raise_if_chain_died()

    def raise_if_chain_died(self, noticed: SapoError | None = None) -> None:
        """Raise with the end of the chain's process as the reason, if it has ended.

        Args:
            noticed: the error by which something else noticed it.

        Raises:
            SapoError: the chain died.
        """
        if self._chain is None or self._chain.exit_code() is None:
            return
        code = self._chain.exit_code()
        why = self._chain.log_tail() or f"it exited with code {code}, and its log is empty"
        raise SapoError(
            f"the chain died: {why}",
            hint=f"the logs of all processes are in {self._settings.report / LOGS}",
            exit_code=ExitCode.LEDGER,
        ) from noticed

    def _snapshot(self, phase: str, seconds_left: float) -> SwarmSnapshot:
        epoch = self._epoch(time.time())
        return SwarmSnapshot(
            phase=phase,
            epoch=epoch if epoch >= 0 else None,
            epochs=self._epochs,
            seconds_left=seconds_left,
            block=self._block,
            records=self._records,
            points=self._points,
            notes=self._notes,
        )

    def _say(self, text: str) -> None:
        self._write_line(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    # Ending

    def finish(self) -> RunOutcome:
        """Stop the attacks, claim a reward, and return the data from which the verdict is computed."""
        settings, layout = self._settings, self._layout
        dead_attackers = [child.name for child in self._attackers if child.exit_code() is not None]
        stop(self._attackers, STOP_SECONDS)
        self._read_events()
        ledger = self.chain_view.epochs(self._records)
        dead = [*dead_attackers, *(child.name for child in self._nodes if not self._is_up(child))]
        if not settings.keep:
            self._stop_nodes()
            self._read_events()
        claim = self._claim(ledger)
        self._keeping = settings.keep
        attackers = [layout.attacker(name) for name in plan.names(plan.ATTACKER_NAMES, settings.attackers)]
        sent = [message for home in attackers for message in read_sent(home.attacks)]
        return RunOutcome(
            starts_differ=self._settings.starts_differ,
            epochs=self._epochs,
            records=self._records,
            attacks=attack_rows(sent, self._records),
            ledger=ledger,
            claim=claim,
            files=created_files(
                layout.root, [home.markers for home in attackers], marker(self.setup.manifest)
            ),
            dead=dead,
            attackers=settings.attackers,
            attacked_seconds=[message.sent_seconds for message in sent if not message.bait],
        )

    def end(self) -> None:
        """Stop all processes that still run, in order; with --keep and a finished run, none."""
        if self._keeping:
            self._say(f"the swarm continues in {self._layout.root}; stop it with: sapo testnet down")
            return
        stop([*self._attackers, *self._inviting], STOP_SECONDS)
        self._stop_nodes()
        stop([child for child, _ in self._beside], STOP_SECONDS)
        stop([self._chain] if self._chain else [], STOP_SECONDS)

    def _stop_nodes(self) -> None:
        stop(self._nodes, STOP_SECONDS)
        for child in self._nodes:  # those that were started again by hand
            state.stop_by_control(self._layout.node(child.name).data.root)

    def _is_up(self, child: ChildProcess) -> bool:
        return child.exit_code() is None or state.is_up(self._layout.node(child.name).data.root)

    def _claim(self, ledger: Sequence[EpochRow]) -> Claim | None:
        """Claim the reward of the node with most points, with the command that its operator would use."""
        earners = [record for record in self._records if points_of(ledger, record.account)]
        if not earners:
            return None
        best = max(earners, key=lambda record: points_of(ledger, record.account))
        member = next(m for m in self.setup.members if m.home.name == best.name)
        before = self.chain_view.paid(member.identity.account)
        argv = sapo("ledger", "claim", "--yes", "--config", str(member.home.config))
        self._say(f"claiming {best.name}'s reward")
        error = _run(argv)
        after = self.chain_view.paid(member.identity.account)
        return Claim(
            name=best.name,
            account=best.account,
            points_before=before[0],
            points_after=after[0],
            tokens_before=before[1],
            tokens_after=after[1],
            error=error,
        )


def _total_points(rows: Sequence[EpochRow]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.points or {})
    return total


def _run(argv: Sequence[str]) -> str | None:
    """Run a command and return why it failed; none if it succeeded."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CLAIM_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"still running after {CLAIM_SECONDS:.0f} s"
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


@contextmanager
def _interruptible() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the first SIGINT or SIGTERM; the second one ends the process at once."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _directory(settings: Settings) -> Iterator[Layout]:
    """Yield the testnet's directory: the one that was named, or a temporary one."""
    if settings.directory is not None:
        yield bringup.fresh_directory(settings.directory)
        return
    with tempfile.TemporaryDirectory(prefix="sapo-testnet-") as folder:
        yield bringup.fresh_directory(Path(folder))


def _keep_logs(layout: Layout, settings: Settings) -> None:
    """Copy the log of every process beside the report."""
    for log in (*layout.root.glob("*/log.txt"), *layout.root.glob("*/*/log.txt")):
        target = settings.report / LOGS / f"{log.parent.name}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, target)
