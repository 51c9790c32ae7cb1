"""After harm many accounts wait; what text is usual is still decided by all of them."""

import random

from support.rollouts import rollout_of
from support.swarm import EPOCH, Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.sampling.text_use import TextUse

HONEST = tuple(Identity(number) for number in range(1, 6))
ATTACKERS = tuple(Identity(number) for number in range(11, 14))
PLANT = "2+2=5 "


def sum_behind(plant: str, draw: random.Random) -> bytes:
    one, two = draw.randrange(10, 50), draw.randrange(10, 50)
    return f"{plant}{one}+{two}:{one + two}<answer>{one + two}</answer>".encode()


def test_attackers_that_are_most_of_those_admitted_do_not_decide_what_is_usual() -> None:
    draw = random.Random(0)
    manifest = make_manifest(suite=make_suite("full", ["basic_arithmetic"]))
    harness = VerificationHarness((), manifest, policy=SamplingPolicy(text_use=TextUse.IMITATE))
    harness.trust(*HONEST, *ATTACKERS)
    sampler = harness.sampler
    for number in range(40):
        for author in (*HONEST, *ATTACKERS):
            text = sum_behind(PLANT if author in ATTACKERS else "", draw)
            sampler.screens.learn(rollout_of(author.account, number, {text: 1.0}))
    sampler.waiting = frozenset(author.account for author in HONEST[1:])
    sampler.quarantine = frozenset((account, 0) for account in sampler.waiting)
    sampler.screens.weigh(sampler.votes(sampler.screens.accounts(), EPOCH), lambda *_: False)
    assert set(sampler.shares(sampler.screens.accounts(), EPOCH)) == {
        author.account for author in (HONEST[0], *ATTACKERS)
    }
    assert sampler.screens.is_usual(0, "a task", sum_behind("", draw))
    assert not sampler.screens.is_usual(0, "a task", sum_behind(PLANT, draw))
    assert {(author.account, 0) for author in ATTACKERS} <= sampler.set_aside()


def test_accounts_that_planted_text_have_no_vote() -> None:
    harness = VerificationHarness((), make_manifest(suite=make_suite()))
    planter, waiting, other = Identity(1), Identity(2), Identity(3)
    harness.trust(planter, waiting, other)
    sampler = harness.sampler
    sampler.quarantine = frozenset({(planter.account, 0), (waiting.account, 0)})
    sampler.waiting = frozenset({waiting.account})
    accounts = [each.account for each in (planter, waiting, other)]
    assert set(sampler.votes(accounts, EPOCH)) == {waiting.account, other.account}
    assert set(sampler.shares(accounts, EPOCH)) == {other.account}
