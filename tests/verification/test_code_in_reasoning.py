"""Honest models write programs when they reason: only what a scorer would be given is held against them."""

from support.swarm import EPOCH, Identity, make_manifest, moment
from support.verification_harness import VerificationHarness

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Suite
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, AccountStanding
from sapo_verification.suites.catalogue import REASONING_GYM, family

ALICE = Identity(1)
MANIFEST = make_manifest(
    suite=Suite(REASONING_GYM, (family("base_conversion", "full"),), Digest(bytes(32))),
)
PROGRAM = """I write a program for it.
```python
def convert(number, base):
    return "0123456789abcdef"[number % base]
if __name__ == "__main__":
    print(convert(int(open("number.txt").read()), {base}))
```
It prints <answer>{answer}</answer>
"""


async def standing_after(*texts: str) -> tuple[AccountStanding, set[Reason]]:
    """Return an account's standing after as many wrong groups of these texts as make it known."""
    harness = VerificationHarness((ALICE,), manifest=MANIFEST)
    for slot in range(AUDITS_BEFORE_WEIGHT):
        completions = tuple(text.encode() for text in texts)
        message = ALICE.message(MANIFEST, slot=slot, completions=completions)
        await harness.engine.verify(harness.engine.admit_own(message, moment(MANIFEST)))
    reasons = {reason for reason, _, _ in harness.record.refusals}
    return harness.reputation.weigh([ALICE.account], EPOCH), reasons


async def test_programs_in_the_reasoning_of_wrong_answers_do_not_exclude_an_honest_newcomer() -> None:
    programs = [PROGRAM.format(base=base, answer=f"wrong{base}") for base in (7, 9)]
    found = await standing_after(*programs, "I would use eval('12') for it, but I do not know.")
    assert found == (AccountStanding({}, (ALICE.account,)), {Reason.NO_SIGNAL})


async def test_programs_in_place_of_answers_exclude_their_author() -> None:
    found = await standing_after(
        "So: <answer>__import__('os').system('id')</answer>", "So: <answer>eval(1)</answer>"
    )
    assert found == (AccountStanding({ALICE.account: 0.0}, ()), {Reason.CODE_IN_ANSWER})
