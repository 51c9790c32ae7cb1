"""Maximum cost of a transaction, and its replacements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ledger import ServedChain

from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.fees import GWEI, Fees, bump, middle, quote

wei = st.integers(0, 10**15)
fees = st.builds(lambda tip, rest: Fees(tip, tip + rest), wei, wei)


def test_the_fees_leave_room_for_a_base_fee_that_doubles(chain: ServedChain) -> None:
    base = chain.engine.head.base_fee_per_gas
    assert chain.rpc.ask(lambda web3: quote(web3, 100 * GWEI)) == Fees(GWEI, 2 * base + GWEI)
    assert chain.rpc.ask(lambda web3: quote(web3, base + GWEI)) == Fees(GWEI, base + GWEI)


def test_a_base_fee_above_the_limit_is_refused_with_a_hint(chain: ServedChain) -> None:
    with pytest.raises(LedgerError, match="more than the limit") as refusal:
        chain.rpc.ask(lambda web3: quote(web3, GWEI - 1))
    assert "ledger.max_fee_gwei" in refusal.value.hint
    price = (chain.engine.head.base_fee_per_gas + GWEI) / GWEI
    assert str(refusal.value).startswith(f"a transaction costs {price:.3g} gwei per gas now")


@given(fees, fees, wei, st.booleans())
def test_a_replacement_pays_a_tenth_more_within_the_limit_or_is_none(
    old: Fees, today: Fees, limit: int, urgent: bool
) -> None:
    better = bump(old, today, limit, urgent=urgent)
    if better is None:
        assert limit <= old.max_fee or 8 * limit < 9 * old.max_fee
        return
    assert better.max_fee > old.max_fee, "another transaction, also where nothing was offered"
    assert 10 * better.tip >= 11 * old.tip
    assert 10 * better.max_fee >= 11 * old.max_fee
    assert better.tip <= better.max_fee <= limit


def test_an_urgent_replacement_pays_twice_as_much_as_far_as_the_limit_goes() -> None:
    old, today = Fees(10, 100), Fees(1, 20)
    assert bump(old, today, 1000, urgent=True) == Fees(20, 200)
    assert bump(old, today, 1000) == Fees(12, 113)
    assert bump(old, today, 150, urgent=True) == Fees(20, 150)
    assert bump(old, today, 112, urgent=True) is None


def test_the_fees_are_a_middle_quote_of_several_endpoints() -> None:
    cheap, usual, dear = Fees(0, 1), Fees(2, 30), Fees(900, 9_000)
    assert middle([dear, usual, cheap]) == usual
    assert middle([dear, usual]) == usual
    assert middle([Fees(5, 6), Fees(9, 10)]) == Fees(5, 6)
