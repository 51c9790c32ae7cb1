"""The claim button: only data that was shown is signed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sapo_client.dashboard.claim import ClaimDesk, Statements
from sapo_client.errors import ExitCode, SapoError


class Bank:
    """A ledger command: asks for consent, then counts as signed."""

    def __init__(self, points: int) -> None:
        self.points = points
        self.signed: list[Statements] = []

    def claim(self, consent: Callable[[Statements], None]) -> Mapping[str, Any]:
        if not self.points:
            raise SapoError("nothing to claim", hint="wait", exit_code=ExitCode.LEDGER)
        statements: Sequence[Mapping[str, Any]] = [{"transaction": "claim", "points": self.points}]
        consent(statements)
        self.signed.append(statements)
        return {"points claimed": self.points}


def body(digest: object) -> bytes:
    return json.dumps({"digest": digest}).encode()


def test_a_preview_signs_nothing_and_a_claim_signs_what_was_shown() -> None:
    bank = Bank(7)
    desk = ClaimDesk(bank.claim)
    preview = desk.preview()
    assert isinstance(preview, dict)
    assert preview["statements"] == [{"transaction": "claim", "points": 7}]
    assert bank.signed == []
    assert desk.confirm(body(preview["digest"])) == {"points claimed": 7}
    assert bank.signed == [[{"transaction": "claim", "points": 7}]]


def test_a_claim_that_changed_after_its_preview_is_not_signed() -> None:
    bank = Bank(7)
    desk = ClaimDesk(bank.claim)
    preview = desk.preview()
    assert isinstance(preview, dict)
    bank.points = 9
    with pytest.raises(SapoError, match="has changed meanwhile"):
        desk.confirm(body(preview["digest"]))
    assert bank.signed == []


@pytest.mark.parametrize("sent", [b"", b"{}", b"[]", body(7), body("0" * 64), b'{"digest": "", "more": 1}'])
def test_a_request_without_the_digest_signs_nothing(sent: bytes) -> None:
    bank = Bank(7)
    with pytest.raises(SapoError):
        ClaimDesk(bank.claim).confirm(sent)
    assert bank.signed == []


def test_a_preview_without_points_or_ledger_is_an_error() -> None:
    with pytest.raises(SapoError) as empty:
        ClaimDesk(Bank(0).claim).preview()
    with pytest.raises(SapoError) as none:
        ClaimDesk(None).preview()
    assert (empty.value.text, none.value.text) == ("nothing to claim", "this node takes part in no ledger")


def test_two_claims_at_once_are_refused() -> None:
    desks: list[ClaimDesk] = []

    def impatient(consent: Callable[[Statements], None]) -> Mapping[str, Any]:
        with pytest.raises(SapoError, match="a claim is under way"):
            desks[0].confirm(body("0"))
        return {"done": True}

    desks.append(ClaimDesk(impatient))
    assert desks[0].confirm(body("0")) == {"done": True}
