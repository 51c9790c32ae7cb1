"""The founder's island options."""

import pytest

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.islands import FOLLOW, islands_of
from sapo_protocol.terms.islands import IslandTerms


def test_islands_follow_the_ledger_and_homes_last_a_day() -> None:
    expected = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=12, most_islands=1024)
    assert islands_of(FOLLOW, 64, 7200) == expected
    assert islands_of(None, 64, 7200) is None


def test_a_constant_number_and_small_islands() -> None:
    found = islands_of("4", 2, 100_000)
    assert found == IslandTerms(
        most_accounts=2, least_accounts=1, period_epochs=1, most_islands=1024, count=4
    )


@pytest.mark.parametrize("accounts", range(2, 40))
def test_islands_merge_below_at_most_half_of_the_dividing_number(accounts: int) -> None:
    terms = islands_of(FOLLOW, accounts, 50)
    assert terms is not None
    assert 1 <= terms.least_accounts <= accounts // 2


@pytest.mark.parametrize(
    ("wanted", "accounts"), [("3", 64), ("many", 64), ("0", 64), ("131072", 64), (FOLLOW, 1)]
)
def test_invalid_islands_are_refused_with_a_hint(wanted: str, accounts: int) -> None:
    with pytest.raises(SapoError) as refused:
        islands_of(wanted, accounts, 7200)
    assert (refused.value.exit_code, "--islands follow" in str(refused.value.hint)) == (ExitCode.USAGE, True)
