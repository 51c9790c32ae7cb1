"""Figures about honest accounts' checked groups in an agent's row."""

import pytest
from support.curves import curve_point
from support.swarm import EPOCH, Identity, moment
from support.verification_harness import BYSTANDER, VerificationHarness

from sapo_client.lab.exposure import Exposure
from sapo_protocol.errors import RemoteProtocolError
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT
from sapo_verification.types import SampledBatch

TEACHER, LIAR = Identity(1), Identity(2)
HIDDEN = "\u200b7".encode()


async def test_only_penalised_groups_of_honest_accounts_are_counted_and_only_once() -> None:
    harness = VerificationHarness((TEACHER, LIAR))
    exposure = Exposure(harness.engine, [BYSTANDER.account, TEACHER.account])
    harness.engine.observe(exposure)
    for author in (TEACHER, LIAR):
        await harness.engine.verify(harness.admit(author, 0))
        await harness.engine.verify(harness.admit(author, 1, right=0))  # no advantage is no fault
        message = author.message(harness.manifest, slot=2, completions=(HIDDEN, b"7"))
        hidden = harness.engine.admit_own(message, moment(harness.manifest))
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await harness.engine.verify(hidden)
    row = exposure.added_to(curve_point(), SampledBatch(()))
    assert (row.examined, row.blamed) == (3, {"R9.1": 1})


def test_weights_are_those_of_accounts_whose_groups_passed() -> None:
    harness = VerificationHarness((TEACHER, LIAR))
    exposure = Exposure(harness.engine, [BYSTANDER.account, TEACHER.account])
    harness.engine.observe(exposure)
    harness.admit(LIAR, 0)
    rows = [exposure.added_to(curve_point(), SampledBatch(()))]
    for _ in range(AUDITS_BEFORE_WEIGHT):
        harness.engine.reputation.record_good(TEACHER.account, 0, EPOCH)
    rows.append(exposure.added_to(curve_point(), SampledBatch(())))
    weight = harness.engine.reputation.evidence(TEACHER.account, EPOCH).weight
    assert weight > 0.0
    assert [(row.honest_weight, row.attackers_weight) for row in rows] == [(None, None), (weight, None)]
