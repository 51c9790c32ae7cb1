"""Amounts of tokens: as text, and in the smallest unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.account.tokens import parse_tokens, show_tokens
from sapo_client.errors import SapoError


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("100", 100 * 10**18),
        ("2.5", 25 * 10**17),
        ("0.000000000000000001", 1),
        ("1e3", 10**21),
        (" 7 ", 7 * 10**18),
    ],
)
def test_an_amount_is_parsed_to_its_last_digit(text: str, units: int) -> None:
    assert parse_tokens(text) == units


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "nan", "inf", "1e-19", "1 000", "1e99999999"])
def test_an_invalid_amount_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(SapoError, match="is not an amount of tokens") as refusal:
        parse_tokens(text)
    assert "2.5" in refusal.value.hint


@given(st.integers(1, 2**96 - 1))
def test_a_shown_amount_parses_back(units: int) -> None:
    assert parse_tokens(show_tokens(units)) == units
