"""The screens of a node together: whose text they remember."""

from support.rollouts import rollout_of
from support.swarm import Identity, make_manifest

from sapo_verification.screens.screens import Screens

OWN, ALICE, BOB = (Identity(number).account for number in range(1, 4))


def test_the_own_text_is_not_remembered_and_others_is_by_either_screen() -> None:
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
