"""Results of a node's last checks of answers, from its events."""

from __future__ import annotations

from trio.testing import MockClock

from sapo_client.node.checks import Checks
from sapo_client.observe.checks import CHECKS, CheckFacts
from sapo_client.observe.health import REMEMBERED_SECONDS
from sapo_protocol.rules import Reason


def ended(checks: Checks, *, decided: int, undecided: int) -> None:
    """Let so many checks end, and messages be refused for other reasons."""
    for _ in range(decided):
        checks.note("verified", {"mean_reward": 0.5})
        checks.note("refused", {"reason": Reason.NO_SIGNAL})
    for _ in range(undecided):
        checks.note("refused", {"reason": Reason.NODE_BUSY})
    checks.note("own_rollout_refused", {"reason": Reason.NODE_BUSY})


async def test_the_last_checks_of_an_hour_are_remembered(autojump_clock: MockClock) -> None:
    checks = Checks()
    assert checks.facts() == CheckFacts()
    ended(checks, decided=20, undecided=20)
    assert checks.facts() == CheckFacts(40, 20)
    autojump_clock.jump(REMEMBERED_SECONDS - 1)
    ended(checks, decided=CHECKS - 20, undecided=0)
    assert checks.facts() == CheckFacts(CHECKS, 20)
    ended(checks, decided=4, undecided=1)
    assert checks.facts() == CheckFacts(CHECKS, 16)
    autojump_clock.jump(2)
    assert checks.facts() == CheckFacts(49, 1)
