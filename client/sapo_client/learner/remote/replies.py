"""What servers of a learner reply: parsed once, strictly, for every token and number of it is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from sapo_client.errors import ExitCode, SapoError

SERVER_AWAY: Final = "server_away"
"""Health finding of a server that does not answer, or fails."""

PASSING: Final = (408, 425, 429)
"""Status codes beside those from 500 on with which a server asks to be asked again."""

_ROUNDING: Final = 1e-3
"""By which a log-probability may exceed 0."""


def away(where: str, why: object) -> SapoError:
    """Return the error of a server that does not answer or fails, which is waited for."""
    return SapoError(
        f"{where} does not answer: {why}",
        hint="see that the server runs, and that learner.endpoint is its address; a running node tries again",
        exit_code=ExitCode.NETWORK,
        transient=True,
        finding=SERVER_AWAY,
    )


def unusable(where: str, why: str, *, hint: str) -> SapoError:
    """Return the error of a server whose replies nobody may train on."""
    return SapoError(f"{where} sends what cannot be used: {why}", hint=hint, exit_code=ExitCode.CONFIG)


def is_passing(status: int) -> bool:
    """Whether a refusal with this status code may be over later."""
    return status >= 500 or status in PASSING


@dataclass(frozen=True, slots=True)
class Asked:
    """What a completion must be like.

    Attributes:
        where: name of the server, for errors.
        most_tokens: that were asked for.
        vocabulary: number of the model's token ids.
        hint: what to do about a server that sends something else.
    """

    where: str
    most_tokens: int
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
        most = self.most_tokens
        if not 1 <= len(tokens) <= most:
            raise self._refused(f"a completion of {len(tokens)} tokens where at most {most} were asked")
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
            raise self._refused(f"{found} completions where {asked} were asked")

    def _refused(self, why: str) -> SapoError:
        return unusable(self.where, why, hint=self.hint)
