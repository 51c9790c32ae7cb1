"""The table of rules: complete, and consistent with what each verdict promises."""

import pytest

from sapo_protocol.errors import Reason, Verdict
from sapo_verification.penalties import HARD, RULES, SOFT, Rule, verdict

REJECTED = {
    Reason.OVERSIZE,
    Reason.NOT_CANONICAL,
    Reason.SCHEMA,
    Reason.OUT_OF_BOUNDS,
    Reason.WRONG_VERSION,
    Reason.WRONG_KIND,
    Reason.WRONG_SWARM,
    Reason.CERTIFICATE_MALFORMED,
    Reason.SLOT_OVER_QUOTA,
    Reason.UNKNOWN_FAMILY,
    Reason.BAD_SIGNATURE,
}
"""Facts of the message and the manifest alone; a new one belongs here only if time and load cannot matter."""


def test_every_reason_has_a_rule() -> None:
    assert set(RULES) == set(Reason)


@pytest.mark.parametrize("reason", list(Reason))
def test_only_facts_of_the_message_are_rejected(reason: Reason) -> None:
    assert (verdict(reason) is Verdict.REJECT) == (reason in REJECTED)


@pytest.mark.parametrize("reason", list(Reason))
def test_what_is_found_after_forwarding_was_an_accept(reason: Reason) -> None:
    assert (verdict(reason) is Verdict.ACCEPT) == (RULES[reason].stage >= 8)


@pytest.mark.parametrize("reason", list(Reason))
def test_only_known_authors_pay(reason: Reason) -> None:
    """Before the signature is checked nobody is known to be the author; equivocation is judged behind it."""
    rule = RULES[reason]
    assert rule.evidence in (0.0, SOFT, HARD)
    assert rule.evidence == 0.0 or rule.stage >= 8 or reason is Reason.EQUIVOCATION


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        RULES[Reason.SEEN] = Rule(0, Verdict.REJECT)  # type: ignore[index]
