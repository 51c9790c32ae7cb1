"""A trio run whose clock stands still between calls from outside, for state machines."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

T = TypeVar("T")


class MockClockRunner:
    """Runner of tasks in a thread of its own; each call returns once all tasks are blocked."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self._opened: Future[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = Future()
        self._thread = ThreadPoolExecutor(1)
        self._life = self._thread.submit(trio.run, self._stay_open, clock=self.clock)
        self._token, self.nursery = self._opened.result()

    def act(self, action: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run an action until all tasks are blocked again; return its result."""
        try:
            outcome: T = trio.from_thread.run(_settled, action, arguments, trio_token=self._token)
        except trio.RunFinishedError:
            self._life.result()  # a task raised: this is the error to show
            raise
        return outcome

    def see(self, look: Callable[[], T]) -> T:
        """Return the result of a function that only reads the tasks' state."""
        return trio.from_thread.run_sync(look, trio_token=self._token)

    def wait(self, seconds: float) -> None:
        """Advance the clock in one step; what was due meanwhile happens at its end."""
        self.clock.jump(seconds)
        self.act(trio.lowlevel.checkpoint)

    def close(self) -> None:
        """End every task.

        Raises:
            BaseExceptionGroup: a task had raised.
        """
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.nursery.cancel_scope.cancel)
        self._thread.shutdown()
        self._life.result()

    async def _stay_open(self) -> None:
        async with trio.open_nursery() as nursery:
            self._opened.set_result((trio.lowlevel.current_trio_token(), nursery))
            await trio.sleep_forever()


async def _settled(action: Callable[..., Awaitable[T]], arguments: tuple[object, ...]) -> T:
    outcome = await action(*arguments)
    await wait_all_tasks_blocked()
    return outcome
