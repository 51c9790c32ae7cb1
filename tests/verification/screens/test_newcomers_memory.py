"""A flood of free newcomers does not displace a node's data about known accounts."""

import random

from support.rollouts import rollout_of
from support.swarm import EPOCH, Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

from sapo_verification.sampling.demonstrations import MAX_ACCOUNTS
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.sampling.text_use import TextUse
from sapo_verification.screens.pair_counts import MAX_PAIRS
from sapo_verification.types import VerifiedRollout

HONEST = tuple(Identity(number) for number in range(1, 13))
MALLORY = Identity(13)
PLANT = "2+2=5 "
MANIFEST = make_manifest(suite=make_suite("full", ["basic_arithmetic"]))


def newcomers(count: int) -> list[Identity]:
    return [Identity(number) for number in range(2000, 2000 + count)]


def sum_behind(plant: str, draw: random.Random) -> bytes:
    one, two = draw.randrange(10, 50), draw.randrange(10, 50)
    return f"{plant}{one}+{two}:{one + two}<answer>{one + two}</answer>".encode()


def group(author: Identity, number: int, draw: random.Random, plant: str = "") -> VerifiedRollout:
    return rollout_of(author.account, number, {sum_behind(plant, draw): 1.0})


def node_that_heard_forty_groups_of_each(draw: random.Random) -> VerificationHarness:
    """Return a node that knows the honest accounts, and Mallory as one who plants a phrase."""
    policy = SamplingPolicy(text_use=TextUse.IMITATE)
    harness = VerificationHarness((), MANIFEST, policy=policy)
    harness.trust(*HONEST, MALLORY)
    for number in range(40):
        for author in HONEST:
            harness.sampler.screens.learn(group(author, number, draw))
        harness.sampler.screens.learn(group(MALLORY, number, draw, PLANT))
    return harness


def test_the_screens_store_forms_and_accounts_set_aside() -> None:
    draw = random.Random(0)
    harness = node_that_heard_forty_groups_of_each(draw)
    screens = harness.sampler.screens
    for number, author in enumerate(newcomers(2 * MAX_PAIRS)):
        screens.learn(group(author, number, draw, PLANT))
    screens.weigh(harness.sampler.votes(screens.accounts(), EPOCH), lambda *_: False)
    assert {author.account for author in HONEST} < screens.accounts()
    assert (MALLORY.account, 0) in harness.sampler.set_aside()
    assert screens.is_usual(0, "a task", sum_behind("", draw))
    assert not screens.is_usual(0, "a task", sum_behind(PLANT, draw))


def test_texts_of_known_accounts_wait_to_be_imitated() -> None:
    draw = random.Random(0)
    harness = node_that_heard_forty_groups_of_each(draw)
    waiting = harness.engine.demonstrations
    for author in HONEST:
        waiting.verified(group(author, 1, draw))
    for number, author in enumerate(newcomers(2 * MAX_ACCOUNTS)):
        waiting.verified(group(author, number, draw))
    assert {(author.account, 0) for author in HONEST} < waiting.pairs()
    assert len(waiting) == MAX_ACCOUNTS
