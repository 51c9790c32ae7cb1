"""Successors: which terms a rollout obeys (R6.11, R6.1 to R6.3), and who audits which epoch (R5.3, R6.6).

In epoch 3 twice as many slots, groups of one, and another family instead of the first come into force.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vectors.cases_contribution import sealed
from vectors.cases_equivocation import proof
from vectors.world import ALICE, BOB, CHAINED, EPOCH, Announced, Case, one

from sapo_protocol.envelope import Kind
from sapo_protocol.manifest_file import successor_to_json
from sapo_protocol.terms.auditors import Replacement
from sapo_protocol.terms.successor import Successor

_SUITE = CHAINED.suite
_MORE = replace(_SUITE, families=(*_SUITE.families, replace(_SUITE.families[0], level="another")))
_SLOTS = CHAINED.limits.slots_per_epoch
_NEW = len(_SUITE.families)
_DOCUMENT = successor_to_json(Successor(CHAINED.swarm_id, _MORE, 2 * _SLOTS, 1, retired=(0,)))
TERMS = Announced(((EPOCH, _DOCUMENT),), EPOCH + 4)


def cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield from _terms()
    yield from _uncertain()
    yield from _auditors()


def _rollout(name: str, rule: str | None, terms: Announced = TERMS, **fields: Any) -> Case:
    fields = {"f5": [b"7"], **fields}
    return one(name, rule, ALICE.rollout(CHAINED, **fields), manifest="chained", terms=terms)


def _terms() -> Iterator[Case]:
    before: dict[str, Any] = {"f2": EPOCH - 1}
    yield _rollout("the last slot before", None, f3=_SLOTS - 1, **before)
    yield _rollout("a slot too early", "R6.1", f3=_SLOTS, **before)
    yield _rollout("a family too early", "R6.3", f4=_NEW, **before)
    yield _rollout("a group of two before", None, f5=[b"7", b"8"], **before)
    yield _rollout("a slot that has come", None, f3=_SLOTS, f4=_NEW)
    yield _rollout("the last slot after", None, f3=2 * _SLOTS - 1, f4=_NEW)
    yield _rollout("a slot beyond", "R6.1", f3=2 * _SLOTS, f4=_NEW)
    yield _rollout("a family that has come", None, f4=_NEW)
    yield _rollout("a family that has retired", "R6.3", f4=0)
    yield _rollout("a family beyond", "R6.3", f4=_NEW + 1)
    yield _rollout("a group of two after", "R6.2", f5=[b"7", b"8"], f4=_NEW)
    yield _rollout("nothing is announced", None, terms=Announced((), EPOCH + 4))


def _uncertain() -> Iterator[Case]:
    unread, before = Announced((), -1), Announced(TERMS.documents, EPOCH - 1)
    yield _rollout("the chain was not read yet", "R6.11", terms=unread)
    yield _rollout("not read yet, and a slot beyond", "R6.11", terms=unread, f3=2 * _SLOTS)
    yield _rollout("terms of the epoch before are certain", None, terms=before, f2=EPOCH - 1)
    yield _rollout("terms of the epoch are not", "R6.11", terms=before, f4=_NEW)
    options: dict[str, Any] = {"manifest": "chained", "topic": "equivocations"}
    yield one("a proof, not read yet", "R6.11", proof(ALICE, CHAINED), terms=unread, **options)
    yield one("a proof", None, proof(ALICE, CHAINED), terms=TERMS, **options)


def _auditors() -> Iterator[Case]:
    over = EPOCH - 1  # whose contributions count now
    founders = (ALICE.account.hex(),)

    def case(name: str, rule: str | None, who: Any, since: int, kind: Kind = Kind.TALLY) -> Case:
        change = (Replacement(since, ALICE.account, BOB.account),)
        message = sealed(kind, who, CHAINED)
        options: dict[str, Any] = {"topic": "contributions", "manifest": "chained"}
        return one(name, rule, message, auditors=founders, replacements=change, **options)

    for kind in (Kind.TALLY, Kind.PROPOSAL, Kind.APPROVAL):
        word = kind.name.lower()
        yield case(f"{word}: of who has left", "R5.3", ALICE, over, kind)
        yield case(f"{word}: of who has come", None, BOB, over, kind)
        yield case(f"{word}: of who leaves with the next epoch", None, ALICE, over + 1, kind)
        yield case(f"{word}: of who comes with the next epoch", "R5.3", BOB, over + 1, kind)
