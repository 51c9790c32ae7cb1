"""Long computations beside the event loop."""

from typing import TypeVar

import trio

from sapo_verification.working import Working

T = TypeVar("T")


async def beside(working: Working[T]) -> T:
    """Run the long parts in a worker thread, all else in this one, and return the result.

    Other tasks go on meanwhile: Python lets the threads take turns every few milliseconds. When it is
    cancelled a part that has begun goes on, and nobody waits for it.
    """
    result = None
    while True:
        try:
            part = working.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        result = await trio.to_thread.run_sync(part, abandon_on_cancel=True)  # type: ignore[call-arg]  # older stubs
