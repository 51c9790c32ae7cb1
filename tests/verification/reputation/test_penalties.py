"""The table of consequences: complete, and consistent with what each verdict promises."""

import pytest

from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.rules import Rule
from sapo_verification.reputation.penalties import CONSEQUENCES, HARD, SOFT, Consequence, verdict

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


def test_every_reason_has_a_consequence_and_a_rule() -> None:
    assert set(CONSEQUENCES) == set(Reason) == {rule.reason for rule in Rule}


@pytest.mark.parametrize("reason", list(Reason))
def test_only_facts_of_the_message_are_rejected(reason: Reason) -> None:
    assert (verdict(reason) is Verdict.REJECT) == (reason in REJECTED)


@pytest.mark.parametrize("rule", list(Rule))
def test_reasons_found_after_forwarding_have_the_verdict_accept(rule: Rule) -> None:
    assert (verdict(rule.reason) is Verdict.ACCEPT) == (rule.stage >= 8)


@pytest.mark.parametrize("reason", list(Reason))
def test_only_faults_of_known_authors_are_evidence(reason: Reason) -> None:
    """Before the signature is checked the author is not known; equivocation is checked behind it."""
    evidence = CONSEQUENCES[reason].evidence
    assert evidence in (0.0, SOFT, HARD)
    assert evidence == 0.0 or verdict(reason) is Verdict.ACCEPT or reason is Reason.EQUIVOCATION


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CONSEQUENCES[Reason.SEEN] = Consequence(Verdict.REJECT)  # type: ignore[index]
