"""The claim button: the fields to be signed are shown first, and consent is bound to their digest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.plain import JSON, to_json

Statements = Sequence[Mapping[str, Any]]

Claim = Callable[[Callable[[Statements], None]], Mapping[str, Any]]
"""Claims the points of final epochs. Its argument is called with the fields to be signed, and raises to
refuse."""


class _Agreement(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    digest: str


class ClaimDesk:
    """Claims for the page; waits for the chain, so it is called in a thread.

    Args:
        claim: sends a claim; none where there is no ledger.
    """

    def __init__(self, claim: Claim | None) -> None:
        self._claim = claim
        self._guard = threading.Lock()

    def preview(self) -> JSON:
        """Return the fields that would be signed, and their digest; nothing is signed.

        Raises:
            SapoError: there is nothing to claim, or the chain does not answer.
        """
        shown: list[Mapping[str, Any]] = []

        def refuse(statements: Statements) -> None:
            shown.extend(statements)
            raise SapoError("nothing was signed", hint="agree to it first", exit_code=ExitCode.KEYSTORE)

        try:
            self._send(refuse)
        except SapoError:
            if not shown:
                raise
        return {"statements": to_json(shown), "digest": _digest(shown)}

    def confirm(self, body: bytes) -> JSON:
        """Claim if the fields to be signed have the previewed digest; return the result.

        Args:
            body: JSON that holds the digest of the preview.

        Raises:
            SapoError: the fields have changed since, or the claim failed.
        """
        try:
            agreed = _Agreement.model_validate_json(body).digest
        except ValidationError as error:
            raise SapoError(
                "the request names no text", hint="open the page again", exit_code=ExitCode.USAGE
            ) from error

        def compare(statements: Statements) -> None:
            if _digest(statements) != agreed:
                raise SapoError(
                    "what would be signed has changed meanwhile, so nothing was signed",
                    hint="read it again: an epoch became final",
                    exit_code=ExitCode.KEYSTORE,
                )

        return to_json(self._send(compare))

    def _send(self, consent: Callable[[Statements], None]) -> Mapping[str, Any]:
        if self._claim is None:
            raise SapoError(
                "this node takes part in no ledger",
                hint="points are granted in a swarm with a chain",
                exit_code=ExitCode.LEDGER,
            )
        if not self._guard.acquire(blocking=False):
            raise SapoError(
                "a claim is under way", hint="wait until the chain has it", exit_code=ExitCode.LEDGER
            )
        try:
            return self._claim(consent)
        finally:
            self._guard.release()


def _digest(statements: Statements) -> str:
    return sha256(json.dumps(to_json(statements), sort_keys=True).encode()).hexdigest()
