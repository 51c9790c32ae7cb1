"""Strict parsing of replies of a learner's servers, since the learner trains on every number in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from sapo_client.errors import ExitCode, SapoError

SERVER_AWAY: Final = "server_away"
"""Health finding of a server that does not answer, or fails."""

PASSING: Final = (408, 425, 429)
"""Status codes below 500 that mean that the request should be repeated later."""

_ROUNDING: Final = 1e-3
"""Rounding error by which a log-probability may exceed 0."""


def away(where: str, why: object) -> SapoError:
    """Return the transient error of a server that does not answer or fails."""
    hint = "see that the server runs, and that learner.endpoint is its address; a running node tries again"
    return transient(f"{where} does not answer: {why}", hint=hint)


def transient(text: str, *, hint: str) -> SapoError:
    """Return the error of a server that may end by itself."""
    return SapoError(
        text,
        hint=hint,
        exit_code=ExitCode.NETWORK,
        transient=True,
        finding=SERVER_AWAY,
    )


def unusable(where: str, why: str, *, hint: str) -> SapoError:
    """Return the error of a server whose replies are invalid."""
    return SapoError(f"{where} sent an invalid reply: {why}", hint=hint, exit_code=ExitCode.CONFIG)


def is_passing(status: int) -> bool:
    """Whether a refusal with this status code may be temporary."""
    return status >= 500 or status in PASSING


@dataclass(frozen=True, slots=True)
class Asked:
    """The requirements on a completion.

    Attributes:
        where: name of the server, for errors.
        max_tokens: requested limit of tokens.
        vocabulary: number of the model's token ids.
        hint: advice for a server that sends something else.
    """

    where: str
    max_tokens: int
    vocabulary: int
    hint: str

    def checked(
        self, tokens: Sequence[int], logprobs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return token ids and log-probabilities as tuples.

        Raises:
            SapoError: lengths differ or are not as asked, an id is not in the vocabulary, or a
                log-probability is not finite or above 0.
        """
        if len(tokens) != len(logprobs):
            raise self._refused(f"{len(tokens)} tokens with {len(logprobs)} log-probabilities")
        if not 1 <= len(tokens) <= self.max_tokens:
            raise self._refused(
                f"a completion of {len(tokens)} tokens; at most {self.max_tokens} were requested"
            )
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise self._refused(f"the token id {token}; the model has {self.vocabulary}")
        for logprob in logprobs:
            if not isfinite(logprob) or logprob > _ROUNDING:
                raise self._refused(f"the log-probability {logprob}")
        return tuple(tokens), tuple(logprobs)

    def require_count(self, found: int, asked: int) -> None:
        """Raise unless there are as many completions as were asked.

        Raises:
            SapoError: there are not.
        """
        if found != asked:
            raise self._refused(f"{found} completions; {asked} were requested")

    def _refused(self, why: str) -> SapoError:
        return unusable(self.where, why, hint=self.hint)
