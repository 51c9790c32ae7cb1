"""Callbacks: called in order on one thread, without delaying the node, until the first error."""

import threading

import pytest

from sapo.callbacks import WAITING, CallbackThread


def test_calls_come_in_order_on_one_thread() -> None:
    seen: list[tuple[int, str]] = []
    thread = CallbackThread(pytest.fail)
    thread.start()
    for number in range(100):
        thread.put(lambda value: seen.append((value, threading.current_thread().name)), number)
    thread.close()
    thread.raise_failure()
    assert seen == [(number, "sapo-callbacks") for number in range(100)]
    assert thread.missed == 0


def test_calls_beyond_the_queue_are_dropped_and_counted() -> None:
    gate, busy, seen = threading.Event(), threading.Event(), list[int]()

    def slow(number: int) -> None:
        busy.set()
        gate.wait()
        seen.append(number)

    thread = CallbackThread(pytest.fail)
    thread.start()
    thread.put(slow, 0)
    busy.wait()
    for number in range(1, WAITING + 4):
        thread.put(slow, number)
    gate.set()
    thread.close()
    assert seen == list(range(WAITING + 1))
    assert thread.missed == 3


def test_the_first_error_ends_the_calls_and_is_raised_once() -> None:
    failed, seen = list[bool](), list[int]()

    def break_at_two(number: int) -> None:
        if number == 2:
            raise ValueError("two")
        seen.append(number)

    thread = CallbackThread(lambda: failed.append(thread.is_current))
    thread.start()
    for number in range(5):
        thread.put(break_at_two, number)
    thread.close()
    with pytest.raises(ValueError, match="two"):
        thread.raise_failure()
    thread.raise_failure()
    assert (seen, failed, thread.is_current) == ([0, 1], [True], False)
