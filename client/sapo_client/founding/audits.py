"""Terms of audits by sample, for swarms too large to check every rollout."""

from __future__ import annotations

from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.tasks import FOLLOW
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.terms.audits import AuditTerms, max_finality_seconds

SAMPLES: Final = 4
"""Audited groups per drawn account: fewer make false claims cheap, more make the pay vary."""


def audits_of(
    one_in: int | None, *, difficulty: str, epoch_seconds: int, finality_seconds: int
) -> AuditTerms | None:
    """Return the terms of audits by sample in a new swarm, or none where auditors check every rollout.

    Invalid terms are refused here, before anything is deployed.

    Args:
        one_in: one account in ``one_in`` is drawn.
        difficulty: of the tasks, ``fixed`` or ``follow``.

    Raises:
        SapoError: there can be no such audits (exit code 2).
    """
    if one_in is None:
        return None
    if difficulty == FOLLOW:
        raise SapoError(
            "audits by sample do not go together with difficulty follow: it counts groups that are not drawn",
            hint="leave out --sample-audits, or say --difficulty fixed",
            exit_code=ExitCode.USAGE,
        )
    if finality_seconds > (longest := max_finality_seconds(epoch_seconds)):
        raise SapoError(
            f"blocks that count after {finality_seconds} s leave no time to audit an epoch of"
            f" {epoch_seconds} s before the next one ends",
            hint=f"say --finality-seconds {longest} or less, or choose longer epochs",
            exit_code=ExitCode.USAGE,
        )
    try:
        return AuditTerms(SAMPLES, one_in)
    except LocalProtocolError as error:
        raise SapoError(
            f"auditors cannot draw one account in {one_in}: {error}",
            hint="say --sample-audits with a power of two, 1 to draw every account",
            exit_code=ExitCode.USAGE,
        ) from error
