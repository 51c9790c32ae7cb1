"""The screens of a node together: accounts whose text they store."""

from support.rollouts import rollout_of
from support.swarm import Identity, make_manifest, make_suite

from sapo_protocol.terms.difficulty import Difficulty
from sapo_verification.screens.screens import Screens

LADDER = Difficulty(ladders=((0, 1),), floor=500, groups=3, completions=2)
OWN, ALICE, BOB = (Identity(number).account for number in range(1, 4))


def test_own_text_is_not_stored_and_text_of_others_in_its_screen() -> None:
    screens = Screens(make_manifest(), b"key", OWN)
    screens.learn(rollout_of(OWN, 1, {b"4+4:8<answer>8</answer>": 1.0}))
    assert screens.accounts() == frozenset()
    screens.learn(rollout_of(ALICE, 1, {b"4<answer>8</answer>": 1.0}))
    screens.learn(rollout_of(BOB, 1, {b"<answer>8</answer> as I said": 1.0}))
    assert screens.usual_forms.counts.accounts() == {ALICE}
    assert screens.recurring_runs.counts.accounts() == {BOB}
    assert screens.usual_answers.counts.accounts() == {ALICE, BOB}
    assert screens.accounts() == {ALICE, BOB}
    screens.weigh({ALICE: 0.5}, lambda *_: False)
    for counts in (screens.usual_forms.counts, screens.usual_answers.counts, screens.recurring_runs.counts):
        assert (counts.weight(ALICE), counts.weight(BOB)) == (0.5, 0.0)


def test_only_paid_groups_are_examined_for_copies() -> None:
    """Where levels follow the swarm, groups that are all right are paid, too."""
    text = " ".join(f"word{n} and{n % 7}" for n in range(60)).encode()
    suite = make_suite("full", ["basic_arithmetic", "base_conversion"])
    fixed = make_manifest(suite=suite)
    following = make_manifest(version=2, suite=suite, difficulty=LADDER)
    for manifest, right_is_examined in ((fixed, False), (following, True)):
        for reward, is_examined in ((0.0, False), (1.0, right_is_examined)):
            screens = Screens(manifest, b"key", OWN)
            answers = {text + b" <answer>%d</answer>" % number: reward for number in range(2)}
            first, second = (rollout_of(ALICE, number, answers) for number in (1, 2))
            assert screens.duplicate_fault(first) is None
            assert (screens.duplicate_fault(second) is not None) is is_examined
