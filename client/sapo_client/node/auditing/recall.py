"""Data availability of final epochs: questions about their leaves, answers, and recalls.

A dishonest quorum may finalise a root without publishing its leaves, if nobody asks for them in time. Honest
auditors cannot add a proposal to such a root. While all nodes still hold the pages of earlier epochs, an
account with points to lose asks on the ledger for its leaves in the oldest of such epochs. If nobody shows
them, the epoch is recalled: the ledger and the honest auditors continue from the root before it. A question
that is not followed by a recall in time lapses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.auditing.disputes import PostedTrees, final_trees
from sapo_client.node.auditing.settlement import cumulative_points
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.offload import offload
from sapo_client.observe.events import EventLog
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_verification.admission.contribution_store import ContributionStore

if TYPE_CHECKING:
    from sapo_client.ledger.records import FinalRecord, LeafQuestion
    from sapo_client.ledger.service import LedgerClient

_LOOKED_AT: Final = 16
"""Final epochs that are examined: more than become final while questions about them are possible."""

_LOOKS: Final = 8
"""Readings in each challenge window, which is how long a question waits for its answer."""


def begun_at(share: float, questions: Mapping[Account, LeafQuestion]) -> list[tuple[Account, LeafQuestion]]:
    """Return questions by account, beginning after a share of them and going round.

    A node has few answers under way at a time. Nodes that begin at different questions answer more of them in
    a window, and seldom pay for the same answer.
    """
    ordered = sorted(questions.items(), key=lambda item: item[0])
    start = int(share * len(ordered))
    return ordered[start:] + ordered[:start]


class FinalEpochs:
    """A node's questions and answers about final epochs.

    Attributes:
        due_seconds: Unix time of the next look.
    """

    def __init__(
        self,
        *,
        account: Account,
        ledger: LedgerClient,
        contributions: ContributionStore,
        events: EventLog,
        clock: Clock,
    ) -> None:
        self._account = account
        self._ledger = ledger
        self._contributions = contributions
        self._events = events
        self._clock = clock
        self.due_seconds = -math.inf
        self._hidden_since: float | None = None
        self._asked: set[Digest] = set()
        self._unread: set[Digest] = set()
        self._trees: tuple[Digest, PostedTrees] | None = None

    async def look(
        self,
        challenge_seconds: int,
        *,
        share: float,
        answer_from: Callable[[int, Account, LeafQuestion], float],
        wait_seconds: Callable[[int], float],
    ) -> None:
        """Answer, ask and recall what is due now; to be called often enough for every question.

        Args:
            share: of the questions, after which this node begins to answer.
            answer_from: returns the Unix time from which this node answers a question about an epoch's leaves
                of an account.
            wait_seconds: returns how long this node leaves the recall of an epoch to others, less than half
                of the window.

        Raises:
            LedgerError: the chain does not answer. If only the questions about one epoch cannot be read, an
                event reports it, and the other epochs are examined.
        """
        now = self._clock()
        if now < self.due_seconds:
            return
        self.due_seconds = now + challenge_seconds / _LOOKS
        newest_first = await self._ledger.leaves.newest_final(_LOOKED_AT)
        # A question waits for its answer, then for a recall, and the last one for its refund.
        horizon = now - await self._ledger.leaves.recall_seconds() - 3 * challenge_seconds
        recent = [final for final in newest_first if final.record.posted_at_seconds > horizon]
        hidden: tuple[Sequence[FinalRecord], Account] | None = None
        for number, final in enumerate(recent):
            epoch = final.record.root.epoch
            turn_seconds, own = wait_seconds(epoch), partial(answer_from, epoch)
            account = await self._answer(final, challenge_seconds, share, own, turn_seconds)
            if account is not None:
                hidden = recent[: number + 1], account
        if hidden is not None:  # the recall of the oldest epoch recalls all later ones
            await self._ledger.leaves.recall(*hidden)
            oldest = hidden[0][-1].record.root
            self._events.write("leaf_hidden", epoch=oldest.epoch, account=hidden[1])
        await self._ask(newest_first, challenge_seconds)

    async def _answer(
        self,
        final: FinalRecord,
        window_seconds: float,
        share: float,
        answer_from: Callable[[Account, LeafQuestion], float],
        turn_seconds: float,
    ) -> Account | None:
        """Show the leaves that were asked for in an epoch.

        Args:
            window_seconds: time for which a question waits for its answer, and then for the recall.
            share: as of ``look``.
            answer_from: as of ``look``.
            turn_seconds: this node leaves the recall to others for so long.

        Returns:
            an account whose leaves were not shown in time, if it is this node's turn to recall the epoch.
        """
        hidden: Account | None = None
        for account, question in begun_at(share, (await self._questions_about(final)) or {}):
            now, turn_from = self._clock(), question.deadline_seconds + turn_seconds
            places = await offload(self._trees_of(final).placing(account))
            if places is not None:
                if now >= (own_from := answer_from(account, question)):
                    await self._ledger.leaves.answer_final(final, places, question)
                    self._events.write("leaf_shown", epoch=final.record.root.epoch, account=account)
                else:
                    self.due_seconds = min(self.due_seconds, own_from)
            elif now >= question.deadline_seconds + window_seconds:
                if self._account in (account, question.asker):  # no question about it is possible meanwhile
                    await self._ledger.leaves.refund_final(final, account, question)
                    self._events.write("question_lapsed", epoch=final.record.root.epoch, account=account)
            elif now >= turn_from:
                hidden = account
            else:
                self.due_seconds = min(self.due_seconds, turn_from)
        return hidden

    async def _ask(self, newest_first: Sequence[FinalRecord], patience_seconds: float) -> None:
        """Ask for this account's leaves in the oldest epoch after the last one whose settlement this node
        holds.

        The pages of the last final epoch are requested from peers first; nothing is asked while they may
        still arrive.
        """
        now = self._clock()
        if newest_first:
            last = ContentId(newest_first[0].record.root.archive_digest)
            await offload(self._contributions.reading_proposal(last))
        hidden = [*takewhile(lambda final: not self._is_known(final), newest_first)]
        if not hidden:
            self._hidden_since = None
            return
        if self._hidden_since is None:
            self._hidden_since = now
        is_early = now < self._hidden_since + patience_seconds
        if is_early or not await self._has_points(newest_first, len(hidden)):
            return
        since = now - await self._ledger.leaves.recall_seconds()
        askable = [final for final in hidden if final.record.posted_at_seconds > since]
        final = next((final for final in reversed(askable) if final.name not in self._asked), None)
        if final is None or await self._waits(hidden):
            return
        if await self._ledger.leaves.ask_final(hidden[: hidden.index(final) + 1], self._account):
            self._asked.add(final.name)
            self._events.write("leaf_asked", epoch=final.record.root.epoch, account=self._account)

    async def _has_points(self, newest_first: Sequence[FinalRecord], hidden: int) -> bool:
        """Whether this account had unclaimed points in the last epoch whose settlement this node holds."""
        if hidden == len(newest_first):
            return False
        granted = cumulative_points(self._contributions, newest_first[hidden].record.root) or {}
        return granted.get(self._account, 0) > await self._ledger.claimed()

    async def _waits(self, finals: Sequence[FinalRecord]) -> bool:
        """Whether an own question about one of these epochs waits, or may wait, for its answer."""
        asked = [final for final in finals if final.name in self._asked]
        found = [await self._questions_about(final) for final in asked]
        return any(questions is None or self._account in questions for questions in found)

    async def _questions_about(self, final: FinalRecord) -> Mapping[Account, LeafQuestion] | None:
        """Return the open questions about an epoch; None, and an event, if the chain does not answer."""
        try:
            return await self._ledger.leaves.of_final(final)
        except LedgerError as error:
            if final.name not in self._unread:
                self._unread.add(final.name)
                self._events.write("questions_unread", epoch=final.record.root.epoch, error=str(error))
            return None

    def _is_known(self, final: FinalRecord) -> bool:
        """Whether this node holds the settlement of an epoch, which contains all leaves."""
        root = final.record.root
        return self._contributions.epoch_root(ContentId(root.archive_digest)) == root

    def _trees_of(self, final: FinalRecord) -> PostedTrees:
        if self._trees is None or self._trees[0] != final.name:
            self._trees = final.name, final_trees(final.record.root, self._contributions)
        return self._trees[1]
