"""Standing by bonds: accounts that count in an epoch, fully or partly, and unknown standing."""

from fractions import Fraction

import pytest
from support.swarm import Identity, make_chain_manifest, make_manifest, moment

from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.rules import Rule
from sapo_protocol.terms.gate import BondGate
from sapo_verification.standing import Standing

ALICE, BOB, OWN = (Identity(number).account for number in (1, 2, 3))
GATE = BondGate(Account(b"\x04" * 20), unit=64, exit_seconds=2**32)
MANIFEST = make_chain_manifest(version=2, gate=GATE)


def has_standing(standing: Standing, account: Account, epoch: int) -> bool:
    try:
        standing.require(account, epoch)
    except RemoteProtocolError as error:
        return error.rule is not Rule.AUTHOR_BONDED
    return True


def test_an_account_without_a_bond_is_ignored_in_its_epochs() -> None:
    standing = Standing(MANIFEST, OWN)
    assert (standing.has_gate, standing.is_known(5), has_standing(standing, BOB, 5)) == (True, False, True)
    standing.learn(5, {ALICE: 1, BOB: 0})
    standing.learn(7, {BOB: 128})
    found = {
        (who, epoch)
        for who in (ALICE, BOB, OWN)
        for epoch in range(4, 9)
        if has_standing(standing, who, epoch)
    }
    own = {(OWN, epoch) for epoch in range(4, 9)}
    assert found == {(ALICE, 4), (BOB, 4), (ALICE, 5), (ALICE, 6), (BOB, 7), (BOB, 8)} | own


def test_units_are_parts_of_a_whole_account() -> None:
    standing = Standing(MANIFEST, OWN)
    with pytest.raises(KeyError):
        standing.units(5)
    standing.learn(5, {ALICE: 16, BOB: 1000})
    assert standing.units(5) == {ALICE: Fraction(1, 4), BOB: Fraction(1)}
    assert (standing.units_of(ALICE, 5), standing.units_now(ALICE), standing.units_now(OWN)) == (
        Fraction(1, 4),
        Fraction(1, 4),
        Fraction(0),
    )


def test_standing_of_four_epochs_is_kept() -> None:
    standing = Standing(MANIFEST, OWN)
    for epoch in range(10):
        standing.learn(epoch, {ALICE: epoch})
    assert [epoch for epoch in range(11) if standing.is_known(epoch)] == [6, 7, 8, 9]


def test_after_an_outage_the_epochs_that_were_missed_go_by_the_last_bonds_before_it() -> None:
    """With nothing known before them, everybody would have standing in them."""
    standing = Standing(MANIFEST, OWN)
    for epoch in (3, 4, 5, 9):
        standing.learn(epoch, {ALICE: 1})
    kept = [epoch for epoch in range(11) if standing.is_known(epoch)]
    assert (kept, has_standing(standing, BOB, 8), has_standing(standing, ALICE, 8)) == ([5, 9], False, True)


def test_an_auditors_certificate_counts_without_a_bond() -> None:
    standing = Standing(MANIFEST, OWN)
    standing.learn(0, {})
    standing.exempt = frozenset({BOB})
    standing.require_now(BOB, moment(MANIFEST))
    with pytest.raises(RemoteProtocolError):
        standing.require_now(ALICE, moment(MANIFEST))


def test_only_a_bond_that_is_known_is_one() -> None:
    standing = Standing(MANIFEST, OWN)
    before = (standing.is_bonded(ALICE, 5), standing.units_now(ALICE), standing.revision)
    standing.learn(5, {ALICE: 64, BOB: 0})
    standing.learn(7, {ALICE: 16, BOB: 64})
    bonded = {
        (who, epoch) for who in (ALICE, BOB) for epoch in (4, 5, 6, 7) if standing.is_bonded(who, epoch)
    }
    assert before == (False, Fraction(1), 0)
    assert bonded == {(ALICE, 5), (ALICE, 6), (ALICE, 7), (BOB, 7)}
    assert (standing.units(5), standing.units_now(ALICE), standing.revision) == (
        {ALICE: Fraction(1)},
        Fraction(1, 4),
        2,
    )


def test_before_the_first_epoch_certificates_go_by_its_bonds() -> None:
    standing = Standing(MANIFEST, OWN)
    standing.learn(0, {ALICE: 1})
    early = MANIFEST.genesis_seconds - 100.0
    standing.require_now(ALICE, early)
    with pytest.raises(RemoteProtocolError):
        standing.require_now(BOB, early)


def test_without_a_gate_every_account_counts_in_full() -> None:
    standing = Standing(make_manifest(), OWN)
    standing.learn(5, {})
    assert (standing.has_gate, standing.is_known(9), standing.units(9)) == (False, True, None)
    assert (standing.units_now(BOB), has_standing(standing, BOB, 5)) == (Fraction(1), True)
    assert (standing.units_of(BOB, 5), standing.is_bonded(BOB, 5), standing.revision) == (
        Fraction(1),
        False,
        0,
    )
