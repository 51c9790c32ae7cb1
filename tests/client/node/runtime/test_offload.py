"""Long computations in a worker thread: other tasks go on, and errors are raised to the caller."""

import threading
from functools import partial
from operator import add

import pytest
import trio

from sapo_client.node.runtime.offload import offload
from sapo_verification.working import Working, at_once


def sums(numbers: list[int]) -> Working[int]:
    total = 0
    for number in numbers:
        total = yield partial(add, total, number)
    return total


async def test_the_result_is_that_of_all_parts_at_once() -> None:
    for numbers in ([], [4], [1, 2, 3]):
        assert await offload(sums(numbers)) == at_once(sums(numbers)) == sum(numbers)


async def test_other_tasks_continue_while_a_part_runs() -> None:
    """The part ends only once another task has had its turn."""
    is_released = threading.Event()

    def waiting() -> Working[bool]:
        was_released: bool = yield lambda: is_released.wait(60)
        return was_released

    async def release() -> None:
        is_released.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(release)
        assert await offload(waiting())


async def test_code_between_the_parts_runs_in_the_calling_thread() -> None:
    threads: list[int] = []

    def noting() -> Working[None]:
        for _ in range(2):
            threads.append(threading.get_ident())
            threads.append((yield threading.get_ident))

    await offload(noting())
    own = threading.get_ident()
    assert [thread == own for thread in threads] == [True, False, True, False]


async def test_a_stopping_node_does_not_wait_for_a_part() -> None:
    is_released = threading.Event()

    def waiting() -> Working[bool]:
        was_released: bool = yield lambda: is_released.wait(60)
        return was_released

    with trio.move_on_after(0.01) as scope:
        await offload(waiting())
    assert scope.cancelled_caught
    assert not is_released.is_set()
    is_released.set()


@pytest.mark.parametrize("run", [offload, at_once])
async def test_a_part_that_fails_fails_the_whole(run: object) -> None:
    def failing() -> Working[None]:
        yield lambda: 1 // 0

    with pytest.raises(ZeroDivisionError):
        await offload(failing()) if run is offload else at_once(failing())
