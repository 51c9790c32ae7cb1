"""Questions about an account's leaves, in the live posting and the last final epochs, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from sapo_client.ledger.changes import Enqueue, InThread
from sapo_client.ledger.contract import EpochLedgerContract, FraudVerifierContract
from sapo_client.ledger.fraud import AccountPlaces, posting_name
from sapo_client.ledger.history import History
from sapo_client.ledger.records import EpochRecord, FinalRecord, LeafQuestion
from sapo_client.ledger.transactions import Call
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest


class LeafQuestions:
    """One account's questions and answers; transactions are only queued.

    Args:
        balance: returns the account's tokens, in the smallest unit.
        in_thread: runs a blocking query of the chain in a worker thread.
        enqueue: queues a transaction of a kind under a name.
    """

    def __init__(
        self,
        ledger: EpochLedgerContract,
        history: History,
        manifest: Manifest,
        balance: Callable[[], Awaitable[int]],
        in_thread: InThread,
        enqueue: Enqueue,
    ) -> None:
        self._ledger: Final = ledger
        self._history: Final = history
        self._domain: Final = manifest.ledger_domain
        self._balance: Final = balance
        self._in_thread: Final = in_thread
        self._enqueue: Final = enqueue

    async def of_live(self, live: EpochRecord) -> Mapping[Account, LeafQuestion]:
        """Return the questions about the live posting that wait for their answers, by account."""
        name = posting_name(live.root.digest(self._domain), live.posted_at_seconds)
        found: Mapping[Account, LeafQuestion] = await self._in_thread(
            lambda: self._ledger.verifier().questions(name)
        )
        return found

    async def ask(self, live: EpochRecord, account: Account) -> bool:
        """Queue a question about the live posting's leaves of an account; false if its bond cannot be
        paid."""
        verifier = await self._verifier()
        key = f"{account}:{live.root.epoch}:{live.posted_at_seconds}"
        return await self._queue_question(verifier, key, verifier.ask(account))

    async def answer(self, live: EpochRecord, places: AccountPlaces, question: LeafQuestion) -> None:
        """Queue the proof of an account's leaves in the live posting, once per question about them."""
        verifier = await self._verifier()
        key = f"{places.account}:{live.posted_at_seconds}:{question.deadline_seconds}"
        await self._queue_recordings(verifier, places)
        await self._enqueue("answer", key, Call(verifier.address, verifier.answer(places)))

    async def reject_hidden(self, live: EpochRecord, account: Account) -> None:
        """Queue the rejection of the live posting, since an account's leaves were not shown in time."""
        verifier = await self._verifier()
        key = f"hidden:{account}:{live.root.epoch}:{live.posted_at_seconds}"
        await self._enqueue("challenge", key, Call(verifier.address, verifier.prove_hidden(account)))

    async def newest_final(self, count: int) -> Sequence[FinalRecord]:
        """Return the last final epochs with all fields of their events, newest first, at most so many."""
        found: Sequence[FinalRecord] = await self._in_thread(lambda: self._history.newest(count))
        return found

    async def recall_seconds(self) -> int:
        """Return how long after its posting the leaves of a final epoch can be asked for."""
        return int(await self._in_thread(lambda: self._ledger.verifier().recall_seconds()))

    async def of_final(self, final: FinalRecord) -> Mapping[Account, LeafQuestion]:
        """Return the questions about a final epoch that wait for their answers, by account."""
        found: Mapping[Account, LeafQuestion] = await self._in_thread(
            lambda: self._ledger.verifier().questions(final.name)
        )
        return found

    async def ask_final(self, newest_first: Sequence[FinalRecord], account: Account) -> bool:
        """Queue a question about an account's leaves in a final epoch; false if its bond cannot be paid.

        Args:
            newest_first: the last final epochs, back to the one that is asked about.
        """
        verifier = await self._verifier()
        key = f"{account}:{newest_first[-1].name}"
        return await self._queue_question(verifier, key, verifier.ask_final(newest_first, account))

    async def answer_final(self, final: FinalRecord, places: AccountPlaces, question: LeafQuestion) -> None:
        """Queue the proof of an account's leaves in a final epoch, once per question about them."""
        verifier = await self._verifier()
        key = f"{places.account}:{final.name}:{question.deadline_seconds}"
        await self._queue_recordings(verifier, places)
        await self._enqueue("answer", key, Call(verifier.address, verifier.answer_final(final, places)))

    async def recall(self, newest_first: Sequence[FinalRecord], account: Account) -> None:
        """Queue the recall of final epochs, as an account's leaves in the oldest were not shown in time."""
        verifier = await self._verifier()
        key = f"recall:{account}:{newest_first[-1].name}"
        await self._enqueue("challenge", key, Call(verifier.address, verifier.recall(newest_first, account)))

    async def refund_final(self, final: FinalRecord, account: Account, question: LeafQuestion) -> None:
        """Queue the refund of the bond of a lapsed question about a final epoch to whoever asked it."""
        verifier = await self._verifier()
        key = f"refund:{account}:{final.name}:{question.deadline_seconds}"
        await self._enqueue("question", key, Call(verifier.address, verifier.refund(final.name, account)))

    async def _queue_recordings(self, verifier: FraudVerifierContract, places: AccountPlaces) -> None:
        """Queue the recordings for an answer whose Merkle proofs do not fit into one transaction."""
        for recording in places.recordings():
            call = Call(verifier.address, verifier.record(recording))
            await self._enqueue("answer", f"record:{recording.root}:{recording.account}", call)

    async def _queue_question(self, verifier: FraudVerifierContract, key: str, data: bytes) -> bool:
        """Queue the approval of the bond, and the question; false if the account's balance is too low."""
        bond = await self._in_thread(verifier.question_bond)
        if await self._balance() < bond:
            return False
        token = await self._in_thread(lambda: self._ledger.distributor().token())
        approval = Call(token.address, token.approve(verifier.address, bond))
        await self._enqueue("question", f"{key}:bond", approval)
        await self._enqueue("question", key, Call(verifier.address, data))
        return True

    async def _verifier(self) -> FraudVerifierContract:
        found: FraudVerifierContract = await self._in_thread(self._ledger.verifier)
        return found
