"""A rollout obeys the terms of its epoch at any time of arrival; without knowledge there is no penalty."""

from typing import Any

import pytest
from support.swarm import Identity, make_certificates, make_chain_manifest
from support.verdicts import reason_of

from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import Reason
from sapo_protocol.suite import Suite
from sapo_protocol.terms.successor import Successor
from sapo_verification.admission.rollouts import Admission, TermsInForce
from sapo_verification.suites.catalogue import REASONING_GYM, family

FIRST = make_chain_manifest()
MORE = Suite(
    REASONING_GYM, (*FIRST.suite.families, family("calendar_arithmetic", "nano")), FIRST.suite.sample_digest
)
ACTIVATION = 20
MANIFEST = FIRST.succeeded_by(
    ACTIVATION, Successor(FIRST.swarm_id, MORE, slots_per_epoch=64, max_completions=4, retired=(1,))
)
ALICE = Identity(1)


def verdict_on(known_until: int | None, epoch: int, **changes: Any) -> Reason | None:
    """Return why a node that knows the terms until an epoch refuses a rollout right after its epoch began."""
    terms = TermsInForce(MANIFEST)
    terms.known_until = known_until
    admission = Admission(MANIFEST, make_certificates(MANIFEST, ALICE), terms=terms)
    message = ALICE.message(MANIFEST, epoch=epoch, **changes)
    now = epoch_start_seconds(MANIFEST, ACTIVATION) + 1
    return reason_of(admission.admit, message, now)


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ({"slot": 31}, None, None),
        ({"slot": 32}, Reason.SLOT_OVER_QUOTA, None),
        ({"slot": 64}, Reason.SLOT_OVER_QUOTA, Reason.SLOT_OVER_QUOTA),
        ({"family": 1}, None, Reason.UNKNOWN_FAMILY),
        ({"family": 3}, Reason.UNKNOWN_FAMILY, None),
        ({"family": 4}, Reason.UNKNOWN_FAMILY, Reason.UNKNOWN_FAMILY),
    ],
)
def test_each_epoch_has_its_own_limits(changes: dict[str, Any], before: Reason, after: Reason) -> None:
    assert verdict_on(ACTIVATION, ACTIVATION - 1, **changes) is before
    assert verdict_on(ACTIVATION, ACTIVATION, **changes) is after


@pytest.mark.parametrize("changes", [{}, {"slot": 64}, {"family": 99}])
def test_before_the_announcements_are_read_no_message_is_penalised(changes: dict[str, Any]) -> None:
    assert verdict_on(-1, ACTIVATION - 1, **changes) is Reason.TERMS_UNKNOWN
    assert verdict_on(ACTIVATION - 1, ACTIVATION, **changes) is Reason.TERMS_UNKNOWN
