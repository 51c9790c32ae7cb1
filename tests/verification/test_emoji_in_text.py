"""Chat models write check marks and numbers as pictures: right answers beside them are right."""

from support.swarm import EPOCH, Identity, make_manifest, moment
from support.verification_harness import WRONG, RecordingObserver, VerificationHarness

from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Suite
from sapo_verification.reputation.evidence import Evidence
from sapo_verification.suites.catalogue import REASONING_GYM, family

ALICE = Identity(1)
MANIFEST = make_manifest(
    suite=Suite(REASONING_GYM, (family("base_conversion", "full"),), Digest(bytes(32))),
)
STEPS = (
    "1\ufe0f\u20e3 I divide by the base.\n"
    "2\ufe0f\u20e3 I write the remainders. \u2714\ufe0f\n\u26a0\ufe0f So: "
)


async def test_an_author_that_writes_emoji_is_rewarded_and_not_penalised() -> None:
    harness = VerificationHarness((ALICE,), manifest=MANIFEST)
    answers = (harness.solution(ALICE.account, 0).decode(), WRONG.decode())
    completions = tuple(f"{STEPS}<answer>{answer}</answer>".encode() for answer in answers)
    message = ALICE.message(MANIFEST, slot=0, completions=completions)
    verified = await harness.engine.verify(harness.engine.admit_own(message, moment(MANIFEST)))
    assert verified.rewards == (1.0, 0.0)
    assert harness.record == RecordingObserver([], [verified])
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)
