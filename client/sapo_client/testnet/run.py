"""`sapo testnet up`: brings the swarm up, watches it, ends it, judges it."""

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
from sapo_client.founding import defaults
from sapo_client.testnet import bringup, plan, report, state
from sapo_client.testnet.attacks import ATTACKS, marker
from sapo_client.testnet.battle import attack_rows, created_files, read_sent
from sapo_client.testnet.ledger_view import ChainView, Claim, EpochRow, points_of
from sapo_client.testnet.plan import Layout, Settings
from sapo_client.testnet.processes import ChildProcess, python, sapo, spawn, stop
from sapo_client.testnet.story import Story
from sapo_client.testnet.tail import EventTail
from sapo_client.testnet.verdict import RunOutcome, failures
from sapo_client.testnet.watch import Moment, View

if TYPE_CHECKING:
    from rich.console import Console

LOOK_SECONDS: Final = 0.5
CHAIN_LOOK_SECONDS: Final = 5.0
"""Between two questions to the chain, which is busy enough with the nodes'."""

POSTING_SECONDS: Final = 60.0
"""After the last epoch: two graces, a proposal, approvals, a window, a grace and two transactions."""

STOP_SECONDS: Final = 60.0
CLAIM_SECONDS: Final = 120.0


class Interrupted(Exception):
    """The user, or whoever started us, wants an end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = int(ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED)


def up(settings: Settings, console: Console) -> int:
    """Runs a whole testnet; returns the exit code.

    Raises:
        SapoError: it could not be brought up.
    """
    with _directory(settings) as layout, _interruptible() as pending:
        testnet = Testnet(settings, layout, console, pending)
        try:
            testnet.bring_up()
            testnet.watch()
            outcome = testnet.finish()
        except Interrupted as wish:
            console.print(f"stopping ({wish})", markup=False)
            return wish.exit_code
        finally:
            testnet.end()
        report.write(outcome, settings, str(testnet.ground.manifest.swarm_id))
        report.show(outcome, settings, console)
        if failed := failures(outcome):
            _keep_logs(layout, settings)
        return int(ExitCode.VERIFICATION if failed else ExitCode.DONE)


class Testnet:
    """One running testnet."""

    def __init__(
        self, settings: Settings, layout: Layout, console: Console, pending: Callable[[], int | None]
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._console = console
        self._voice: Callable[[str], None] = self._print
        self._pending = pending
        self._chain: ChildProcess | None = None
        self._nodes: list[ChildProcess] = []
        self._attackers: list[ChildProcess] = []
        self._mourned: set[str] = set()
        self._notes: list[str] = []
        self._keeping = False
        names = plan.names(plan.NODE_NAMES, settings.nodes)
        self._stories = [Story(name) for name in names]
        self._tails = [EventTail(layout.node(name).data.events) for name in names]
        self._next_chain_look = 0.0
        self._block: int | None = None
        self._points: Counter[str] = Counter()

    # Bringing up

    def bring_up(self) -> None:
        """Chain, contracts, coins, nodes, attackers.

        Raises:
            SapoError: one of them does not come up.
            Interrupted: somebody wants an end.
        """
        settings, layout, tied = self._settings, self._layout, not self._settings.keep
        self._begin("starting the chain")
        self._chain, rpc_url, deployer = bringup.start_chain(layout, tied=tied)
        members = bringup.create_members(layout, settings.nodes, settings.auditors)
        villains = bringup.create_attackers(layout, settings.attackers)
        self._begin("deriving the tasks of the suite")
        suite = defaults.nano_suite()
        self._begin("deploying the contracts")
        self.ground = bringup.found(
            settings, layout, suite=suite, rpc_url=rpc_url, deployer=deployer, members=members
        )
        self.chain_view = ChainView(rpc_url, self.ground.manifest)
        bringup.fund(self.ground, deployer, [member.identity for member in members])
        bringup.write_settings(settings, layout, self.ground)
        for member in members:
            argv, home = bringup.join_line(member.home), member.home
            self._nodes.append(spawn(home.name, argv, folder=home.root, log=home.log, tied=tied))
        self._remember()
        self._begin(f"started {', '.join(member.home.name for member in members)}")
        bringup.fund(self.ground, deployer, [one for identities in villains.values() for one in identities])
        for number, name in enumerate(villains):
            self._attackers.append(self._start_attacker(name, number))
        self._remember()

    def _begin(self, stage: str) -> None:
        self._heed()
        self._say(stage)

    def _start_attacker(self, name: str, number: int) -> ChildProcess:
        layout, settings = self._layout, self._settings
        home = layout.attacker(name)
        argv = python(
            "sapo_client.testnet.attacker", "--manifest", str(layout.manifest), "--home", str(home.root),
            "--seed", str(settings.seed), "--offset", str(number * (len(ATTACKS) // 2)),
            *(part for member in self.ground.members for part in ("--target", member.address)),
        )  # fmt: skip
        return spawn(name, argv, folder=home.root, log=home.log, tied=not settings.keep)

    def _remember(self) -> None:
        assert self._chain is not None
        entries = [
            state.own_entry(),
            state.entry_of(self._chain, "chain"),
            *(state.entry_of(child, "node") for child in self._nodes),
            *(state.entry_of(child, "attacker") for child in self._attackers),
        ]
        state.keep(self._layout, state.TestnetState(self.ground.rpc_url, tuple(entries)))

    # Watching

    def watch(self) -> None:
        """Shows the swarm until its epochs are over and on the ledger, or will not come."""
        end = self._epochs_end()
        with View(self._console, moving=self._settings.progress) as view:
            self._voice = view.say  # lines go above the live table
            while (now := time.time()) < end + POSTING_SECONDS and not self._is_posted(now, end):
                self._look(now)
                view.show(self._moment("learning" if now < end else "posting", end - now), time.monotonic())
                time.sleep(LOOK_SECONDS)
        self._voice = self._print

    def _epochs_end(self) -> float:
        manifest = self.ground.manifest
        return manifest.genesis_seconds + self._settings.epochs * manifest.epoch_seconds

    def _is_posted(self, now: float, end: float) -> bool:
        return now >= end and self.chain_view.next_epoch() >= self._settings.epochs

    def _look(self, now: float) -> None:
        self._heed()
        self._read_events()
        self._mourn()
        if now >= self._next_chain_look:
            self._next_chain_look = now + CHAIN_LOOK_SECONDS
            self._block = self.chain_view.block()
            self._points = _total_points(self.chain_view.epochs(self._stories))

    def _heed(self) -> None:
        """Nothing, unless somebody wants an end."""
        if (number := self._pending()) is not None:
            raise Interrupted(number)

    def _read_events(self) -> None:
        for story, tail in zip(self._stories, self._tails, strict=True):
            for event in tail.new_events():
                story.tell(event)

    def _mourn(self) -> None:
        """Says once of each child that it died; without the chain there is nothing left to watch."""
        for child in (*self._nodes, *self._attackers, *filter(None, [self._chain])):
            if child.exit_code() is None or child.name in self._mourned:
                continue
            self._mourned.add(child.name)
            note = f"{child.name} ended with code {child.exit_code()}; its log: {child.log}"
            self._notes.append(note)
            self._say(note)
            if child in self._nodes:
                self._say(f"to start it again: {' '.join(child.argv)}")
            if child is self._chain:
                raise SapoError(
                    f"the chain died: {child.last_words()}",
                    hint=f"its log is {child.log}",
                    exit_code=ExitCode.LEDGER,
                )

    def _moment(self, phase: str, seconds_left: float) -> Moment:
        manifest, now = self.ground.manifest, time.time()
        epoch = int((now - manifest.genesis_seconds) // manifest.epoch_seconds)
        return Moment(
            phase=phase,
            epoch=epoch if epoch >= 0 else None,
            epochs=self._settings.epochs,
            seconds_left=seconds_left,
            block=self._block,
            stories=self._stories,
            points=self._points,
            notes=self._notes,
        )

    def _say(self, text: str) -> None:
        self._voice(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    # Ending

    def finish(self) -> RunOutcome:
        """Ends the attacks, claims a reward, and gathers what the run is judged by."""
        settings, layout = self._settings, self._layout
        dead_attackers = [child.name for child in self._attackers if child.exit_code() is not None]
        stop(self._attackers, STOP_SECONDS)
        self._read_events()
        ledger = self.chain_view.epochs(self._stories)
        dead = [*dead_attackers, *(child.name for child in self._nodes if not self._is_up(child))]
        if not settings.keep:
            self._stop_nodes()
            self._read_events()
        claim = self._claim(ledger)
        self._keeping = settings.keep
        villains = [layout.attacker(name) for name in plan.names(plan.ATTACKER_NAMES, settings.attackers)]
        sent = [message for home in villains for message in read_sent(home.attacks)]
        return RunOutcome(
            epochs=settings.epochs,
            stories=self._stories,
            attacks=attack_rows(sent, self._stories),
            ledger=ledger,
            claim=claim,
            files=created_files(
                layout.root, [home.markers for home in villains], marker(self.ground.manifest)
            ),
            dead=dead,
            attackers=settings.attackers,
        )

    def end(self) -> None:
        """Ends whatever still runs, in order; with --keep only what must not go on alone."""
        if self._keeping:
            self._say(f"the swarm goes on in {self._layout.root}; end it with: sapo testnet down")
            return
        stop(self._attackers, STOP_SECONDS)
        self._stop_nodes()
        stop([self._chain] if self._chain else [], STOP_SECONDS)

    def _stop_nodes(self) -> None:
        stop(self._nodes, STOP_SECONDS)
        for child in self._nodes:  # those that somebody started again by hand
            state.stop_by_control(self._layout.node(child.name).data.root)

    def _is_up(self, child: ChildProcess) -> bool:
        return child.exit_code() is None or state.is_up(self._layout.node(child.name).data.root)

    def _claim(self, ledger: Sequence[EpochRow]) -> Claim | None:
        """The reward of the node with most points, claimed by the command that its owner would use."""
        earners = [story for story in self._stories if points_of(ledger, story.account)]
        if not earners:
            return None
        best = max(earners, key=lambda story: points_of(ledger, story.account))
        member = next(m for m in self.ground.members if m.home.name == best.name)
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
    """Why a command failed, or none if it did not."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CLAIM_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"no end within {CLAIM_SECONDS:.0f} s"
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


@contextmanager
def _interruptible() -> Iterator[Callable[[], int | None]]:
    """The first SIGINT or SIGTERM, to be asked for; the second one ends the process at once."""
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
    """The testnet's directory: the one that was named, or one that lives as long as the testnet."""
    if settings.directory is not None:
        yield bringup.fresh_directory(settings.directory)
        return
    with tempfile.TemporaryDirectory(prefix="sapo-testnet-") as folder:
        yield bringup.fresh_directory(Path(folder))


def _keep_logs(layout: Layout, settings: Settings) -> None:
    """What the processes said, beside the report that says why the run failed."""
    for log in (layout.chain_log, *layout.root.glob("*/*/log.txt")):
        target = settings.report / "logs" / f"{log.parent.name}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, target)
