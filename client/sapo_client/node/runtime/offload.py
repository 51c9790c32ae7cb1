"""Long computations in a worker thread."""

from typing import TypeVar

import trio

from sapo_verification.working import Working

T = TypeVar("T")


async def offload(working: Working[T]) -> T:
    """Run the long parts of a computation in a worker thread, the rest in this one, and return the result.

    Other tasks run meanwhile, since Python switches between the threads every few milliseconds. After a
    cancellation a part that has begun runs on in its thread, and its result is dropped.
    """
    result = None
    while True:
        try:
            part = working.send(result)
        except StopIteration as done:
            value: T = done.value
            return value
        result = await trio.to_thread.run_sync(part, abandon_on_cancel=True)  # type: ignore[call-arg]  # older stubs
