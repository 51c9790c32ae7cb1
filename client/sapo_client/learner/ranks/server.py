"""Calls of a learner with several ranks: the leader passes each on, and every rank runs it.

The leader is the learner's process that the node has started; only it reads requests and replies. All ranks
run the same call on the same state, so a ``SapoError`` must be raised by all; if only some raise it, their
states have diverged, and all ranks are restarted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from sapo_client.errors import SapoError
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.ranks.launch import (
    RankLost,
    end_of_process,
)
from sapo_client.learner.ranks.memory import MicroBatchTooLarge
from sapo_client.learner.ranks.serving import refusal_message
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message

REFUSAL_SECONDS: Final = 20.0
"""A rank that refuses a call waits so long for the others to refuse it too."""


class Leader:
    """Service of the rank that communicates with the node.

    Args:
        settings: of the learner.
        ranks: of which this is the leader; the others run ``follow``.

    Raises:
        SapoError: a rank cannot start.
    """

    def __init__(self, settings: LearnerSettings, ranks: RankGroup) -> None:
        self._ranks = ranks
        ranks.broadcast(settings.to_message())
        self._service: Service = together(ranks, lambda: Service(settings, ranks), starts=True)

    def about(self) -> Message:
        """Return the reply to the start of a learner."""
        return self._service.about()

    def call(self, name: str, arguments: dict[str, Any]) -> Message:
        """Run a call on all ranks; return this one's result.

        Raises:
            SapoError: all ranks refuse it.
        """
        self._ranks.broadcast({"call": name, "arguments": arguments})
        try:
            result: Message = together(self._ranks, lambda: self._service.call(name, arguments))
        except (MicroBatchTooLarge, RankLost) as error:
            end_of_process(error, self._ranks.rank)
        return result


def follow(ranks: RankGroup) -> NoReturn:
    """Run the leader's calls until the leader ends.

    Raises:
        SapoError: a rank cannot start.
        RankLost: this rank refused a call that others did, or the reverse.
    """
    settings = LearnerSettings.from_message(ranks.broadcast(None))
    service = together(ranks, lambda: Service(settings, ranks), starts=True)
    while True:
        request = ranks.broadcast(None)
        with suppress(SapoError):  # the leader replies
            together(ranks, partial(service.call, request["call"], request["arguments"]))


def together(ranks: RankGroup, action: Callable[[], Any], *, starts: bool = False) -> Any:
    """Run an action on all ranks; return this rank's result if none refuses.

    Args:
        ranks: of the learner.
        action: of this rank.
        starts: whether one refusal suffices, because there is no state yet that could diverge.

    Raises:
        SapoError: all ranks refuse, or one at the start.
        RankLost: some refuse and others do not.
    """
    result, refusal = None, None
    try:
        result = action()
    except SapoError as error:
        refusal = error
    limit = threading.Timer(REFUSAL_SECONDS, end_of_process, (refusal, ranks.rank))
    limit.daemon = True
    if refusal is not None:
        limit.start()
    refusals = ranks.exchange(None if refusal is None else refusal_message(refusal))
    limit.cancel()
    refused = [each for each in refusals if each is not None]
    if not refused:
        return result
    if len(refused) == ranks.size or starts:
        raise SapoError(**refused[0])
    raise RankLost(f"only some ranks refused: {refused[0]['text']}")
