"""A node that has used all slots of an epoch: it says so, and goes on with the next one after any sleep."""

from __future__ import annotations

import trio
from support.health_trial import Begin
from support.nodes import LOCAL_GROUPS, manifest_of
from trio.testing import MockClock

from sapo_protocol.suite import Suite

EPOCH_SECONDS = 7200


async def test_a_machine_that_sleeps_over_the_end_of_an_epoch_goes_on_at_once(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """Timers stand still meanwhile: the node would wait for two hours more."""
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS, slots=2 * LOCAL_GROUPS))
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.until_status(lambda status: status["waits_for_epoch"] == 1)
        shown = (await trial._sapo("status")).stdout
        assert [
            line.partition("next round")[2].strip() for line in shown.splitlines() if "next round" in line
        ] == ["with epoch 1: all slots of epoch 0 are used"]
        await trial.run_for(600)
        await trio.sleep(1)  # of the mock clock: the node is assessed
        assert set(await trial.codes()) == {"no_peers"}
        said = trial.terminal + trial.capsys.readouterr().err
        assert "all slots of epoch 0 are used: the next round begins with epoch 1\n" in said

        before = (await trial.home.get("status"))["round"]
        trial.suspend(EPOCH_SECONDS)
        trial.pass_by(10)
        await trial.until_status(lambda status: status["round"] > before)
        assert [event["epoch"] for event in trial.home.events("step")][-1] == 1
        assert "no_round" not in await trial.codes()
        await trial.stop()
