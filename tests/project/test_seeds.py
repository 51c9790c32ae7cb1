"""Random choices of a test are its own: they depend neither on earlier tests nor on the time."""

import os
import random
import zlib

import pytest
import torch
import trio
from trio._core import _run

SEED = os.environ.get("SAPO_TEST_SEED", "0")


def _expected(request: pytest.FixtureRequest) -> float:
    return random.Random(f"{SEED} {request.node.nodeid}").random()


def test_every_generator_is_seeded_by_the_name_of_the_test(request: pytest.FixtureRequest) -> None:
    assert [random.random(), _run._r.random()] == [_expected(request)] * 2


def test_pytorch_is_seeded_too(request: pytest.FixtureRequest) -> None:
    assert torch.initial_seed() == zlib.crc32(f"{SEED} {request.node.nodeid}".encode())


async def _order(tasks: int) -> list[int]:
    order: list[int] = []

    async def run(number: int) -> None:
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(run, number)
    return order


async def test_the_order_of_tasks_is_a_choice_of_that_generator() -> None:
    orders = []
    for _ in range(2):
        _run._r.seed("one order")
        orders.append(await _order(20))
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])
