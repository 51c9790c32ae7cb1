"""Queries of the chain over several RPC endpoints, none of which is trusted alone."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from eth_typing import BlockNumber
from web3 import Web3
from web3.exceptions import Web3Exception, Web3RPCError
from web3.types import BlockIdentifier

from sapo_client.ledger.endpoints import EndpointStatus, RpcEndpoint, Unanswered, connect
from sapo_client.ledger.errors import Disagreement, LedgerError, LedgerUnavailable, NotYet, WrongChain

T = TypeVar("T")

_STALE_BLOCKS: Final = 3
"""Blocks take time to propagate: working endpoints may be this many blocks apart."""

_STALE_SECONDS: Final = 60
"""The head of a working endpoint is younger than this on any public chain, so an endpoint that invents future
blocks cannot make it look stale."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """One endpoint's answer; without a ``value``, ``unable`` is the reason."""

    endpoint: RpcEndpoint
    value: T | None
    unable: LedgerError | None = None


class Rpc:
    """The endpoints of one chain; the one that answered last is asked first.

    Args:
        chain_id: the chain that they must serve; none: whichever they serve.
        connect: opens a connection to a URL.
        clock: monotonic, in seconds.
        now: Unix time, to recognise an old head.
        report: called with a description of each new problem of an endpoint, once.

    Attributes:
        last_answer_seconds: when any endpoint last answered, on the monotonic clock; none before the first.
        head_seconds: timestamp of the block that the last survey returned; none before the first.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        chain_id: int | None = None,
        connect: Callable[[str], Web3] = connect,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.last_answer_seconds: float | None = None
        self.head_seconds: int | None = None
        self._chain_id = chain_id
        self._clock = clock
        self._now = now
        self._endpoints = tuple(RpcEndpoint(url, connect(url), clock, report) for url in urls)
        self._preferred: RpcEndpoint | None = None

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """Return the status of each endpoint, in the configured order."""
        return tuple(endpoint.status for endpoint in self._endpoints)

    def chain_id(self) -> int:
        """Return the chain that transactions are signed for.

        Raises:
            LedgerUnavailable: none was named, and no endpoint answers.
        """
        return self._chain_id or self.agree(lambda web3: int(web3.eth.chain_id), "the chain's id")

    def ask(self, question: Callable[[Web3], T]) -> T:
        """Return the first answer of any endpoint, for queries whose wrong answer does no harm.

        Raises:
            WrongChain: every endpoint serves another chain.
            LedgerUnavailable: no endpoint answers.
            LedgerError: the reason of the last endpoint that could not answer.
        """
        reason, unable = "none is named", None
        for endpoint in self._in_order():
            try:
                answer = self._ask(endpoint, question)
            except Unanswered as error:
                reason = str(error)
                continue
            except Web3Exception as error:
                unable = _refused(error)
                continue
            self._preferred = endpoint
            return answer
        raise unable or self._no_answer(reason)

    def each(self, question: Callable[[Web3], T], *, sure: bool = False) -> list[Answer[T]]:
        """Return the answers of all working endpoints; of all others if none works.

        A ``LedgerError`` in a query, or a refusal by the chain, means that this endpoint cannot answer.

        Args:
            sure: check the chain id before and after the query, for queries that another chain would answer
                as well.

        Raises:
            WrongChain, LedgerUnavailable: as ``ask``.
        """
        if sure:
            question = self._on_this_chain(question)
        in_order = [end for end in self._in_order() if end.may_be_asked and not end.is_stale]
        answers = self._answers(in_order, question)
        if not answers:
            answers = self._answers([end for end in self._in_order() if end not in in_order], question)
        if not answers:
            raise self._no_answer("all of them were asked")
        return answers

    def agree(self, question: Callable[[Web3], T], what: str | None = None) -> T:
        """Return the answer of more than half of those that answer, for queries that must not be wrong.

        Args:
            what: name of the query if two answers mean that an endpoint lies or is broken; none if
                they only mean that a new block has not reached all endpoints.

        Raises:
            WrongChain, LedgerUnavailable: as ``ask``.
            Disagreement: no answer has a majority.
            LedgerError: no endpoint can answer.
        """
        answers = self.each(question, sure=True)
        if what is not None:
            self.compare(answers, what)
        agreed = majority([answer.value for answer in answers])
        if agreed is not None:
            return agreed
        unable = [answer.unable for answer in answers if answer.unable is not None]
        if len(unable) == len(answers):
            raise unable[0]
        raise Disagreement(what or "the newest blocks")

    def read(self, question: Callable[[Web3, BlockIdentifier], T], what: str) -> T:
        """Return the majority's answer, as ``agree``, from the state after the newest block that most have.

        A single endpoint is queried at its own newest block.

        Raises:
            WrongChain, LedgerUnavailable, Disagreement, LedgerError: as ``agree``.
        """
        if len(self._endpoints) == 1:
            return self.ask(lambda web3: question(web3, "latest"))
        block = BlockNumber(self.common_block())
        return self.agree(lambda web3: question(web3, block), what)

    def common_block(self) -> int:
        """Return the newest block that at least half of those that answer have.

        Raises:
            WrongChain, LedgerUnavailable: as ``ask``.
            Disagreement: of an even number, the two in the middle are far apart.
        """
        answers = self.each(lambda web3: int(web3.eth.block_number))
        heads = sorted(answer.value for answer in answers if answer.value is not None)
        if not heads:
            raise self._no_answer("all of them were asked")
        low, high = heads[(len(heads) - 1) // 2], heads[len(heads) // 2]
        if high - low > _STALE_BLOCKS:  # of two, it is unknown which one is wrong
            raise Disagreement("the newest blocks")
        return low

    def compare(self, answers: Sequence[Answer[Any]], what: str) -> None:
        """Count and report endpoints that contradict the majority; all of them if there is none."""
        known = [answer for answer in answers if answer.value is not None]
        if len({answer.value for answer in known}) < 2:
            return
        agreed = majority([answer.value for answer in answers])
        for answer in known:
            if answer.value != agreed:
                answer.endpoint.disagreed(f"it disagrees with others about {what}")

    def broadcast(self, action: Callable[[Web3], Any]) -> list[Web3RPCError | None]:
        """Send a transaction to every endpoint; return none for each that accepted it, else its refusal.

        Raises:
            WrongChain, LedgerUnavailable: as ``ask``.
        """
        outcomes: list[Web3RPCError | None] = []
        reason = "none is named"
        for endpoint in self._in_order():
            if endpoint.rests and outcomes:
                continue
            try:
                self._ask(endpoint, action)
                outcomes.append(None)
            except Unanswered as error:
                reason = str(error)
            except Web3RPCError as refusal:
                outcomes.append(refusal)
        if not outcomes:
            raise self._no_answer(reason)
        return outcomes

    def survey(self) -> int:
        """Return the number of the last block, after querying every endpoint's chain and head.

        Raises:
            WrongChain, LedgerUnavailable: as ``ask``.
        """
        heads = {}
        awake = [endpoint for endpoint in self._endpoints if not endpoint.rests]
        for endpoint in awake or self._endpoints:
            try:
                endpoint.check_chain(self._chain_id, again=True)
                if not endpoint.on_wrong_chain:
                    heads[endpoint] = self._ask(endpoint, _head)
            except (Unanswered, Web3Exception):
                continue
        if not heads:
            raise self._no_answer("all of them were asked")
        self._compare_heads(heads)
        fresh = sorted(head for endpoint, head in heads.items() if not endpoint.is_stale)
        number, self.head_seconds = fresh[(len(fresh) - 1) // 2]  # the median ignores outliers
        return number

    def _compare_heads(self, heads: Mapping[RpcEndpoint, tuple[int, int]]) -> None:
        ordered = sorted(number for number, _ in heads.values())
        middle = ordered[len(ordered) // 2]  # of three or more, one that is ahead makes no other look stale
        for endpoint, (number, timestamp) in heads.items():
            endpoint.head = number
            stale = middle - number > _STALE_BLOCKS and self._now() - timestamp > _STALE_SECONDS
            endpoint.note_lag(middle - number if stale else None)

    def _in_order(self) -> list[RpcEndpoint]:
        """Return working endpoints first, of these the last to answer first; none of another chain."""
        right = [endpoint for endpoint in self._endpoints if not endpoint.on_wrong_chain]
        return sorted(right, key=lambda end: (end.rests, end.is_stale, end is not self._preferred))

    def _ask(self, endpoint: RpcEndpoint, question: Callable[[Web3], T]) -> T:
        endpoint.check_chain(self._chain_id)
        if endpoint.on_wrong_chain:
            raise Unanswered("another chain")
        answer = endpoint.ask(question)
        self.last_answer_seconds = self._clock()
        return answer

    def _answers(self, endpoints: Sequence[RpcEndpoint], question: Callable[[Web3], T]) -> list[Answer[T]]:
        answers = []
        for endpoint in endpoints:
            try:
                answers.append(Answer(endpoint, self._ask(endpoint, question)))
            except Unanswered:
                continue
            except LedgerError as error:
                answers.append(Answer(endpoint, None, error))
            except Web3Exception as error:
                answers.append(Answer(endpoint, None, _refused(error)))
        return answers

    def _on_this_chain(self, question: Callable[[Web3], T]) -> Callable[[Web3], T]:
        """Return the query with a check of the chain id before and after it, since that may change."""

        def require(web3: Web3) -> None:
            if self._chain_id is not None and web3.eth.chain_id != self._chain_id:
                raise NotYet("it serves another chain now", hint="it is asked again later")

        def asked(web3: Web3) -> T:
            require(web3)
            answer = question(web3)
            require(web3)
            return answer

        return asked

    def _no_answer(self, reason: str) -> LedgerError:
        names = [endpoint.name for endpoint in self._endpoints]
        if self._endpoints and all(endpoint.on_wrong_chain for endpoint in self._endpoints):
            return WrongChain(names, str(self._endpoints[0].trouble))
        silent = [endpoint.trouble for endpoint in self._endpoints if endpoint.trouble]
        return LedgerUnavailable(names, silent[-1] if silent else reason)


def _refused(error: Web3Exception) -> NotYet:
    return NotYet(
        f"the chain refuses to say: {str(error) or type(error).__name__}", hint="try another RPC address"
    )


def majority(values: Sequence[T | None]) -> T | None:
    """Return the value of more than half of all votes, those without a value included; else none."""
    votes = Counter(value for value in values if value is not None)
    if not votes:
        return None
    value, count = votes.most_common(1)[0]
    return value if 2 * count > len(values) else None


def _head(web3: Web3) -> tuple[int, int]:
    block = web3.eth.get_block("latest")
    return int(block["number"]), int(block["timestamp"])
