"""A month of a node in virtual time: what happens to it, and what health says of that and of quiet days.

Real parts: the node with its learner process, an embedded chain over HTTP, a peer, settled contracts.
A day is an epoch. The table is in docs/operator-trial.md; with ``SAPO_WRITE_MONTH`` set it is written there.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio
from support.health_chain import ChainTrial, begin_with_chain
from support.health_trial import Begin, HealthTrial, without_figures
from support.ledger import ServedChain
from support.nodes import LOOK_SECONDS, PATIENCE_SECONDS, until
from trio.testing import MockClock

from sapo_client.ledger.chain.errors import RpcError
from sapo_client.node.app import NodeApp
from sapo_client.observe.control_client import ControlClient
from sapo_client.swarm.simulated.memory import MemoryTransport
from sapo_protocol.suite import Suite

if TYPE_CHECKING:
    from trio_typing import TaskStatus

DAY_SECONDS: Final = 86_400
STRIDE_SECONDS: Final = 20.0
MONTH_DAYS: Final = 32  # a registration and its certificates are renewed in it
PAGE: Final = Path(__file__).parents[3] / "docs/operator-trial.md"
MARK: Final = "<!-- the month -->\n"
LIMIT: Final = -32005

Usage = namedtuple("Usage", "total used free")


class RateLimited:
    """A provider that refuses every request for a while."""

    def call(self, method: str, params: object) -> Any:
        """Refuse.

        Raises:
            RpcError: always.
        """
        raise RpcError(LIMIT, "daily request count exceeded, request rate limited")


class Month:
    """A node and its swarm, day by day."""

    def __init__(self, on_chain: ChainTrial, node: NodeApp, nursery: trio.Nursery) -> None:
        self.on_chain = on_chain
        self.node = node
        self.peer = trio.CancelScope()
        self._nursery = nursery
        self.trial: HealthTrial = on_chain.trial
        self.day = 0
        self.rows: list[str] = []
        self.settles = True
        self.slept = 0.0
        self._points = 0

    @property
    def account(self) -> Any:
        """The node's account."""
        return self.trial.home.identity.account

    async def meet(self, name: str) -> None:
        """Connect a peer, until its scope is cancelled."""
        peer = MemoryTransport(self.trial.hub, name, on_bug=_raise)
        self.peer = trio.CancelScope()

        async def run(task_status: TaskStatus[None]) -> None:
            with self.peer:
                async with trio.open_nursery() as nursery:
                    await nursery.start(peer.run)
                    task_status.started()
                    await trio.sleep_forever()

        await self._nursery.start(run)
        await peer.connect(self.trial.home.address)

    async def elapse(self, seconds: float) -> None:
        """Let timers run on, in steps after each of which a round ends, as on a machine that works."""
        for _ in range(int(seconds // STRIDE_SECONDS)):
            self.trial.pass_by(STRIDE_SECONDS)
            await self.trial.rounds(1)

    async def codes(self) -> set[str]:
        """Return the codes of all findings of a new assessment."""
        self.trial.pass_by(10)
        await self.trial.rounds(1)
        return set(await self.trial.codes())

    async def next_day(self, expected: frozenset[str] = frozenset()) -> None:
        """Let a day pass: the machine sleeps at night, the auditors settle, and nothing else may be told."""
        self.trial.suspend(DAY_SECONDS - self.slept)
        self.day, self.slept = self.day + 1, 0.0
        if self.settles:
            self._points += 1
            settle = partial(self.on_chain.contracts.settle, self.day - 1, {self.account: self._points})
            await trio.to_thread.run_sync(settle)
        else:
            await self.on_chain.send_coins(self.account)
        await self.trial.until_status(lambda now: now["epoch"] == self.day)
        assert await self.codes() <= expected, self.trial.terminal

    async def quiet_days(self, until_day: int) -> None:
        """Let days pass in which nothing happens."""
        while self.day < until_day:
            await self.next_day()

    async def told(self, what: str, code: str) -> None:
        """Wait until a finding is told; note its sentence as a row of the table."""
        await self.trial.until_status(lambda now: code in [each["code"] for each in now["findings"]])
        [found] = [each for each in (await self.trial.home.get("status"))["findings"] if each["code"] == code]
        sentence = without_figures(found["text"])
        self.rows.append(f"| {self.day} | {what} | {found['level']}: {sentence} (`{code}`) | goes away |")

    async def over(self, code: str) -> None:
        """Wait until a finding is over and the terminal has said so."""
        await self.trial.until_over(code)

    def silent(self, what: str, why: str) -> None:
        """Note what rightly causes no finding."""
        self.rows.append(f"| {self.day} | {what} | nothing: {why} | - |")

    async def paused(self, seconds: float) -> None:
        """Let timers run on for a time in which the node makes no round."""
        client = ControlClient(self.trial.home.data)
        await trio.to_thread.run_sync(partial(client.pause, paused=True))
        await self.trial.until_status(lambda now: now["state"] == "paused")
        with trio.fail_after(PATIENCE_SECONDS):
            while self.node._learner.call is not None:
                await trio.sleep(LOOK_SECONDS)
        self.trial.pass_by(seconds)
        await trio.to_thread.run_sync(partial(client.pause, paused=False))


@contextmanager
def free_space(usage: Usage) -> Iterator[None]:
    """Let the system report so much free space."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _folder: usage)
        yield


@contextmanager
def answering(chain: ServedChain, methods: Any) -> Iterator[None]:
    """Let a chain's address answer with other methods."""
    server = chain._server
    before, server.methods = server.methods, methods
    try:
        yield
    finally:
        server.methods = before


async def network(month: Month) -> None:
    """Peers are lost and found; the address of the chain is limited, then another chain's."""
    chain = month.on_chain.chain
    month.peer.cancel()
    await month.elapse(40)
    await month.told("the last peer is lost", "no_peers")
    await month.meet("second")
    await month.over("no_peers")
    await month.quiet_days(4)

    with answering(chain, RateLimited()):
        await month.elapse(120)
        await month.told("the RPC provider limits requests", "chain_silent")
    await month.elapse(40)
    await month.over("chain_silent")
    await month.quiet_days(6)


async def clocks(month: Month) -> None:
    """NTP is off for a while; the laptop sleeps for nine hours in the middle of a day."""
    trial = month.trial
    trial.skew = 150
    await month.told("the clock is set 150 s ahead", "clock_jumped")
    trial.skew = 0
    await month.over("clock_jumped")
    month.slept = 9 * 3600.0
    trial.suspend(month.slept)
    assert await month.codes() == set()
    month.silent("the laptop sleeps for nine hours", "it goes on where it was")
    await month.quiet_days(8)


async def machine(month: Month) -> None:
    """The disk fills; the kernel ends the learner for want of memory."""
    trial, gib = month.trial, 2**30
    with free_space(Usage(100 * gib, 100 * gib, 2**20)):
        trial.pass_by(10)
        await month.told("the disk fills up", "disk_low")
    trial.pass_by(10)
    await month.over("disk_low")
    await month.quiet_days(10)

    trial.home.signal_learner(signal.SIGKILL)
    await month.told("the kernel ends the learner (out of memory)", "learner_restarted")
    await trial.rounds(2)
    await month.paused(3700)
    await month.over("learner_restarted")
    await month.quiet_days(12)


async def swarm(month: Month) -> None:
    """The auditors stop for a week; the swarm goes on."""
    month.settles = False
    for _ in range(7):
        await month.next_day(frozenset({"not_settled"}))
    await month.paused(140)
    await month.told("no auditor settles for a week", "not_settled")
    month.settles = True
    await month.next_day(frozenset({"not_settled"}))
    await month.over("not_settled")


async def registration(month: Month) -> None:
    """The registration of the first day is renewed; the node looks every ten minutes whether it must be."""
    await month.paused(700)
    await until(lambda: len(month.trial.home.events("registration")) == 2)
    month.silent("the registration nears its end", "it is renewed in time")


def write(rows: list[str]) -> None:
    """Assert that the page has the table; with ``SAPO_WRITE_MONTH`` set, write it there first."""
    table = "| day | what happens | what is told | afterwards |\n| ---: | --- | --- | --- |\n"
    table += "".join(f"{row}\n" for row in rows)
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    before, _, after = rest.partition(MARK)
    if os.environ.get("SAPO_WRITE_MONTH"):
        PAGE.write_text(f"{head}{MARK}{table}{MARK}{after}", encoding="utf-8")
        before = table
    assert before == table


@pytest.mark.long
async def test_a_month(mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path) -> None:
    on_chain = begin_with_chain(begin, weekdays, tmp_path, epoch_seconds=DAY_SECONDS)
    trial = on_chain.trial
    on_chain.contracts.chain.clock = lambda: trial.now() - trial.skew
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(trial.home.identity.account)
        node = await trial.start(nursery)
        month = Month(on_chain, node, nursery)
        await month.meet("first")
        await trial.until_status(lambda now: now["ledger"]["registered"])
        await month.quiet_days(3)
        for happens in (network, clocks, machine, swarm, registration):
            await happens(month)
        await month.quiet_days(MONTH_DAYS)
        failed = [event for event in trial.home.events("service_failed") if not event["transient"]]
        assert failed == []
        write(month.rows)
        await trial.stop()
        nursery.cancel_scope.cancel()
    on_chain.chain.close()


def _raise(error: Exception) -> None:
    raise error
