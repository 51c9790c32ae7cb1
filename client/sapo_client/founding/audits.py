"""The audits of a swarm that becomes too large for auditors to check every rollout."""

from __future__ import annotations

from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.terms.audits import AuditTerms

SAMPLES: Final = 4
"""Of a drawn account: with fewer a false claim costs too little, with more the pay varies more."""


def audits_of(one_in: int | None) -> AuditTerms | None:
    """Return the terms of audits by sample in a new swarm, or none where auditors check every rollout.

    Raises:
        SapoError: there can be no such audits (exit code 2).
    """
    if one_in is None:
        return None
    try:
        return AuditTerms(SAMPLES, one_in)
    except LocalProtocolError as error:
        raise SapoError(
            f"auditors cannot draw one account in {one_in}: {error}",
            hint="say --sample-audits with a power of two, 1 to draw every account",
            exit_code=ExitCode.USAGE,
        ) from error
