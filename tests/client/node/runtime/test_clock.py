"""A node's clock, compared with a steady one and with a chain."""

from __future__ import annotations

import pytest

from sapo_client.node.runtime.clock import (
    COMPARED_SECONDS,
    HARMLESS_SECONDS,
    QUIET_CHAIN_SECONDS,
    SETTLED_SECONDS,
    ClockWatch,
)

EPOCH = 3600.0


class Clocks:
    """A steady clock, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.steady_seconds = 50.0
        self.ahead_seconds = 0.0

    def wall(self) -> float:
        return 1_000_000.0 + self.steady_seconds + self.ahead_seconds

    def watch(self, *, asks_chain: bool = False) -> ClockWatch:
        return ClockWatch(self.wall, lambda: self.steady_seconds, asks_chain=asks_chain)


def test_a_clock_jump_has_no_effect_until_it_is_confirmed() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.ahead_seconds = 5.0  # a correction
    assert watch.now() == clocks.wall()
    corrected = watch.now()
    clocks.ahead_seconds += 100 * EPOCH
    clocks.steady_seconds += 7
    assert (watch.now(), watch.wall()) == (corrected + 7, corrected + 7 + 100 * EPOCH)
    clocks.steady_seconds += SETTLED_SECONDS - 1
    assert watch.now() == corrected + 7 + SETTLED_SECONDS - 1
    clocks.steady_seconds += 1
    assert watch.now() == watch.wall() == clocks.wall()
    clocks.ahead_seconds -= 100 * EPOCH
    assert watch.now() == clocks.wall() + 100 * EPOCH, "back is a jump as well"


def test_without_a_chain_a_clock_is_trusted_at_once() -> None:
    assert Clocks().watch().is_believed


@pytest.mark.parametrize(
    ("epoch_age_seconds", "block_age_seconds", "believed"),
    [
        (EPOCH, 0.0, True),
        (EPOCH, EPOCH, True),
        (EPOCH, EPOCH + 1, False),
        (9.0, 600.0, True),
        (9.0, 601.0, False),
    ],
)
def test_a_block_of_the_clocks_epoch_shows_that_it_has_begun(
    epoch_age_seconds: float, block_age_seconds: float, believed: bool
) -> None:
    watch = Clocks().watch(asks_chain=True)
    assert not watch.is_believed, "no block was seen"
    watch.note_block(watch.wall() - block_age_seconds, epoch_start_seconds=watch.wall() - epoch_age_seconds)
    assert watch.is_believed == believed
    watch.compared(None, ahead_seconds=0.0, agrees=True)
    assert watch.is_believed


def test_a_chain_without_new_blocks_is_waited_for_from_the_first_that_is_seen() -> None:
    clocks = Clocks()
    watch = clocks.watch(asks_chain=True)
    clocks.steady_seconds += 10 * QUIET_CHAIN_SECONDS  # no network, so no look
    assert not watch.is_believed
    for passes, believed in ((0.0, False), (QUIET_CHAIN_SECONDS - 1, False), (1.0, True)):
        clocks.steady_seconds += passes
        watch.note_block(clocks.wall() - EPOCH, epoch_start_seconds=clocks.wall())
        assert watch.is_believed == believed


def test_a_clock_ahead_of_new_blocks_is_not_confirmed() -> None:
    clocks = Clocks()
    watch = clocks.watch(asks_chain=True)
    for _ in range(2):
        watch.note_block(clocks.wall() - EPOCH, epoch_start_seconds=clocks.wall())
        watch.compared(None, ahead_seconds=EPOCH, agrees=False)
        clocks.steady_seconds += QUIET_CHAIN_SECONDS
    assert not watch.is_believed


def test_while_the_clock_is_not_confirmed_the_certain_time_is_that_of_the_newest_block() -> None:
    clocks = Clocks()
    watch = clocks.watch(asks_chain=True)
    assert watch.certain() == 0, "no block was seen"
    watch.note_block(clocks.wall() - 5, epoch_start_seconds=clocks.wall() - EPOCH)
    assert (watch.is_believed, watch.certain()) == (True, clocks.wall() - 5)
    watch.compared(None, ahead_seconds=EPOCH, agrees=False)
    assert (watch.is_believed, watch.certain()) == (False, clocks.wall() - 5)
    watch.note_block(clocks.wall() - 10, epoch_start_seconds=clocks.wall() - EPOCH)
    assert watch.certain() == clocks.wall() - 5, "another endpoint is behind"
    watch.note_block(clocks.wall() + 7, epoch_start_seconds=clocks.wall() - EPOCH)
    assert watch.certain() == clocks.wall(), "a block of the future proves nothing"


def test_without_a_chain_the_time_by_which_the_node_lives_is_certain() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    before = watch.now()
    clocks.ahead_seconds = EPOCH
    assert watch.certain() == watch.now() == before


@pytest.mark.parametrize("looks", [1, 2])
def test_the_allowed_lead_at_a_start_is_not_certain_before_another_block(looks: int) -> None:
    """Ten minutes of lead may be in the next epoch of the chain, whose tally cannot be taken back."""
    clocks = Clocks()
    watch = clocks.watch(asks_chain=True)
    chain_seconds = clocks.wall() - HARMLESS_SECONDS
    for _ in range(looks):
        watch.compared(None, ahead_seconds=0.0, agrees=False)
        watch.note_block(chain_seconds, epoch_start_seconds=clocks.wall() - 9)
    found = (watch.is_believed, watch.awaits_chain, watch.awaits_block, watch.certain())
    assert found == (True, False, True, chain_seconds)
    watch.compared(None, ahead_seconds=HARMLESS_SECONDS - 15, agrees=False)
    watch.note_block(chain_seconds + 12, epoch_start_seconds=clocks.wall() - 9)
    assert (watch.is_believed, watch.awaits_block, watch.certain()) == (False, False, chain_seconds + 12)


@pytest.mark.parametrize("shows", ["another block", "agreement", "no block for a while"])
def test_the_time_is_certain_after_another_block_an_agreement_or_a_pause(shows: str) -> None:
    clocks = Clocks()
    watch = clocks.watch(asks_chain=True)
    first = clocks.wall() - 40
    watch.note_block(first, epoch_start_seconds=clocks.wall() - EPOCH)
    assert watch.certain() == first
    clocks.steady_seconds += COMPARED_SECONDS if shows == "no block for a while" else 1
    watch.compared(None, ahead_seconds=0.0, agrees=shows == "agreement")
    watch.note_block(first + 12 * (shows == "another block"), epoch_start_seconds=clocks.wall() - EPOCH)
    assert (watch.awaits_block, watch.certain()) == (False, clocks.wall())
