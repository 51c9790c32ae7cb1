"""Units of an account: proportional to its bond, never more by splitting, or by its attestations."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.gate import MAX_ATTESTERS, Attestation, BondGate, EasGate, points_cap

units = st.integers(1, 2**96 - 1)
amounts = st.integers(0, 2**96 - 1)


def gate(unit: int) -> BondGate:
    return BondGate(Account(bytes(20)), unit, exit_seconds=2**32)


@given(units, st.integers(0, 2**64 - 1), st.lists(amounts, max_size=70))
def test_splitting_a_bond_never_raises_its_pay(unit: int, most: int, parts: list[int]) -> None:
    whole = points_cap(most, Fraction(sum(parts), unit))
    assert sum(points_cap(most, gate(unit).units(part)) for part in parts) <= whole


@given(units, amounts, amounts)
def test_units_rise_with_tokens_up_to_one(unit: int, a: int, b: int) -> None:
    less, more = sorted((a, b))
    assert 0 <= gate(unit).units(less) <= gate(unit).units(more) <= 1
    assert gate(unit).units(unit) == 1
    assert gate(unit).units(0) == 0


def test_a_cap_is_rounded_down() -> None:
    assert [points_cap(512, gate(64).units(bonded)) for bonded in (0, 1, 32, 63, 64, 65)] == [
        0,
        8,
        256,
        504,
        512,
        512,
    ]


ATTESTERS = tuple(Account(bytes(19) + bytes([number])) for number in range(1, MAX_ATTESTERS + 2))
EAS = EasGate(Account(b"\x05" * 20), Digest(b"\x06" * 32), ATTESTERS[:2], after_block=7)


@pytest.mark.parametrize(
    "changes",
    [
        {"attesters": ()},
        {"attesters": ATTESTERS},
        {"attesters": ATTESTERS[1::-1]},
        {"attesters": (ATTESTERS[0], ATTESTERS[0])},
        {"after_block": -1},
        {"after_block": 2**64},
    ],
    ids=str,
)
def test_terms_of_attestations_have_bounds(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(EAS, **changes)  # type: ignore[arg-type]


def test_several_attestations_count_as_one() -> None:
    assert replace(EAS, attesters=ATTESTERS[:-1]).units(1) == 1
    assert [EAS.units(number) for number in (0, 1, 2, 1000)] == [0, 1, 1, 1]


@given(*[st.integers(0, 9)] * 5)
def test_an_attestation_counts_from_its_block_on(
    since: int, made: int, expires: int, revoked: int, at: int
) -> None:
    attestation = Attestation(EAS.schema, Account(bytes(20)), ATTESTERS[0], made, expires, revoked)
    end = min([end for end in (expires, revoked) if end] or [at + 1])
    times = {"since_seconds": since, "block_seconds": at}
    assert EAS.accepts(attestation, **times) == (since < made <= at < end)
    others = {"attester": ATTESTERS[5]}, {"attester": attestation.recipient}, {"schema": Digest(bytes(32))}
    assert not any(EAS.accepts(replace(attestation, **change), **times) for change in others)
