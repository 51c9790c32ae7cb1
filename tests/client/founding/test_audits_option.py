"""The audits that a founder asks for."""

import pytest

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.audits import audits_of
from sapo_protocol.terms.audits import AuditTerms


def test_four_groups_of_one_account_in_so_many_are_drawn() -> None:
    assert [audits_of(one_in) for one_in in (None, 1, 16)] == [None, AuditTerms(4, 1), AuditTerms(4, 16)]


@pytest.mark.parametrize("one_in", [0, 3, 131_072])
def test_what_cannot_be_drawn_is_refused_with_what_can(one_in: int) -> None:
    with pytest.raises(SapoError) as refused:
        audits_of(one_in)
    assert (refused.value.exit_code, "power of two" in str(refused.value.hint)) == (ExitCode.USAGE, True)
