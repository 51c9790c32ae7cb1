"""A family that others' text ruins trips the canary, whatever they teach in other families meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.self_scored import SelfScored
from support.simulated_policies import ALIKE, SimulatedPolicies, simulated_canary
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import VerificationHarness

from sapo_client.node.training.canary_state import MAX_COMPARISONS, SPOILT_DOUBT, CanaryFile, CanaryState
from sapo_client.node.training.family_evidence import NO_TASKS, BestLevels, Comparison, Losses
from sapo_client.node.training.harm_rates import HarmRates, PastComparison
from sapo_client.observe.events import read_events
from sapo_protocol.manifest import Limits
from sapo_verification.types import Demonstration, SampledBatch

OWN, OTHER = Identity(1), Identity(2)
NAMES = ("basic_arithmetic", "fraction_simplification", "calendar_arithmetic", "decimal_arithmetic")
FAMILIES = make_suite("nano", NAMES).families
KNOWN = 0


class Watched:
    """A canary of scripted policies that are trained on others' text in every round."""

    def __init__(self, folder: Path, policy: Sequence[float], shadow: Sequence[float], seed: int) -> None:
        checker = SelfScored(NAMES)
        self.folder = folder
        self.learner = SimulatedPolicies(checker, policy, shadow, random.Random(seed))
        manifest = make_manifest(
            suite=make_suite("nano", NAMES),
            limits=Limits(slots_per_epoch=2**20, max_completions=8, points_per_epoch=16),
        )
        self.desk = VerificationHarness((OWN, OTHER), manifest=manifest)
        self.canary = simulated_canary(folder, self.desk, self.learner, secret=b"secret %d" % seed)
        self._batch_of_other: SampledBatch | None = None

    async def checks(self, number: int) -> None:
        """Train and check so many times."""
        after = list(self.learner.policy)
        self.learner.policy = list(self.learner.good)
        await self.canary.open()  # keeps the policy of before others' text
        self.learner.policy, self.learner.kept = after, 0
        for _ in range(number):
            await self.canary.after(await self._batch())

    async def checks_of(self, policy: Sequence[float], most: int) -> None:
        """Train a policy that is right with these chances until a check decides, at most so many times."""
        self.learner.policy, self.learner.kept, self.learner.returned = list(policy), 0, 0
        for _ in range(most):
            await self.canary.after(await self._batch())
            if self.learner.kept or self.learner.returned:
                return

    async def _batch(self) -> SampledBatch:
        """Return a batch with a demonstration of another account, always the same one."""
        self._batch_of_other = self._batch_of_other or await self._made_batch()
        return self._batch_of_other

    async def _made_batch(self) -> SampledBatch:
        harness = self.desk
        message = OTHER.message(harness.manifest, slot=0, family=1, completions=(b"1/2", b"2/3"))
        rollout = await harness.engine.verify(harness.engine.admit_own(message, moment(harness.manifest)))
        shown = Demonstration(rollout.task, rollout.prompt, b"1/2", source=rollout)
        assert rollout.admitted.rollout.epoch == EPOCH
        return SampledBatch(groups=(), demonstrations=(shown,))

    @property
    def spoilt(self) -> list[object]:
        """The families for which the policy was rolled back, at each time."""
        events = read_events(self.folder / "events.jsonl")
        return [event["spoilt"] for event in events if event["event"] == "rolled_back"]


TAUGHT = (0.7, 0.7, 0.7)
BEFORE = (0.1, 0.1, 0.1)


@pytest.mark.parametrize("seed", range(5))
async def test_gains_in_three_families_do_not_hide_the_loss_of_one(tmp_path: Path, seed: int) -> None:
    """Of 64 items 29 are won and 13 lost in a check: over all the policy is better than its shadow."""
    watched = Watched(tmp_path, policy=(0.0, *TAUGHT), shadow=(0.8, *BEFORE), seed=seed)
    await watched.checks(3)
    assert watched.learner.kept == 0, "the ruined policy never becomes the shadow"
    assert (watched.learner.returned, watched.spoilt) == (1, [[KNOWN]])
    assert watched.learner.policy == [0.8, *BEFORE]
    assert {account for account, _ in watched.desk.sampler.quarantine} <= {OTHER.account}
    state = watched.canary._watch
    assert state is not None
    assert watched.desk.sampler.waiting == state.accounts.waiting, "those vote on what text is usual"
    assert PastComparison((OTHER.account,), has_harmed=True) in state.accounts.comparisons
    assert state.opening == 4, "others' text is used but for that account's"


@pytest.mark.parametrize("seed", range(5))
async def test_a_policy_that_keeps_most_of_a_family_becomes_the_shadow(tmp_path: Path, seed: int) -> None:
    watched = Watched(tmp_path, policy=(0.7, *TAUGHT), shadow=(0.8, *BEFORE), seed=seed)
    await watched.checks(3)
    assert (watched.learner.kept > 0, watched.learner.returned) == (True, 0)


@pytest.mark.parametrize("level", [0.1, 0.4, 0.8])
def test_policies_like_their_shadows_are_not_rolled_back_for_a_family(level: float) -> None:
    """Of 100 policies, over twenty checks each; at half of a family, one in a hundred may be."""
    returned = 0
    for seed in range(100):
        rng, watch, spoilt = random.Random(seed), CanaryState(), False
        for _ in range(20):
            check = []
            for _ in NAMES:
                pairs = [(one, one if rng.random() < ALIKE else rng.random()) for one in luck(rng, 16)]
                right = [(mine < level, its < level) for mine, its in pairs]
                both, won, lost = (right.count(each) for each in ((True, True), (True, False), (False, True)))
                check.append(Comparison(16, both, won, lost))
            watch = watch.checked(0, 0, 64, tuple(check))
            spoilt |= bool(watch.spoilt)
        returned += spoilt
    assert returned <= 1


def luck(rng: random.Random, items: int) -> list[float]:
    """Return a number below 1 for each item; who is right with a larger chance is right there."""
    return [rng.random() for _ in range(items)]


async def test_a_restart_remembers_the_families(tmp_path: Path) -> None:
    watched = Watched(tmp_path, policy=(0.75, *BEFORE), shadow=(0.8, *BEFORE), seed=1)
    await watched.checks(2)
    found = CanaryFile(tmp_path / "canary.json", FAMILIES).read()
    assert found == watched.canary._watch
    assert found is not None
    assert [sum(each.tasks for each in check) for check in found.by_family] == [64, 64]


def test_the_file_of_an_earlier_version_has_no_families(tmp_path: Path) -> None:
    file = CanaryFile(tmp_path / "canary.json", FAMILIES)
    file.write(CanaryState(checks=3, lost=2))
    text = (tmp_path / "canary.json").read_text()
    assert ', "by_family": []' in text
    (tmp_path / "canary.json").write_text(text.replace(', "by_family": []', ""))
    assert file.read() == CanaryState(checks=3, lost=2)


GIFT = 0.22
"""What attackers teach in each of three families until the next time that the policy becomes the shadow."""

KEPT = 0.6
"""Part of the other family that they leave meanwhile; a loss of less than half is no harm by itself."""


@pytest.mark.parametrize("seed", range(5))
async def test_gifts_do_not_pay_for_one_loss_after_another(tmp_path: Path, seed: int) -> None:
    """Each of four policies is much better than its shadow, and keeps most of what that knows."""
    watched = Watched(tmp_path, policy=(0.9, *BEFORE), shadow=(0.9, *BEFORE), seed=seed)
    await watched.checks(2)
    gifts = BEFORE[0]
    for _ in range(4):
        gifts += GIFT
        await watched.checks_of((KEPT * watched.learner.good[KNOWN], *[gifts] * 3), most=MAX_COMPARISONS)
    assert watched.learner.good[KNOWN] > 0.3, "half of what the first one surely knew; 0.12 without that"


def test_a_policy_is_spoilt_that_keeps_most_of_what_was_left_and_less_than_half_of_the_best() -> None:
    left = Comparison(16, both=3, won=1, lost=4)
    found = [lost_after(12, left, best) for best in (None, 0.8)]
    assert found == [[], [0]]
    assert lost_after(12, Comparison(16, both=6, won=1, lost=1), 0.8) == [], "a half of the best is kept"
    assert lost_after(12, Comparison(16, both=2, won=1, lost=1), 0.8) == [], "its shadow has no more"


def lost_after(checks: int, each: Comparison, best: float | None) -> list[int]:
    """Return the families that are surely lost after so many equal checks of one."""
    losses = Losses(1, SPOILT_DOUBT, None if best is None else BestLevels([best]))
    for _ in range(checks):
        losses.learn({0: each})
    return losses.spoilt


def test_the_best_levels_survive_a_restart(tmp_path: Path) -> None:
    check = (Comparison(16, 12, 2, 2), Comparison(16, 1, 12, 0), *[Comparison(16, 12, 0, 0)] * 2)
    state = CanaryState().checked(2, 14, 64, check).checked(2, 14, 64, check).kept(5)
    file = CanaryFile(tmp_path / "canary.json", FAMILIES)
    file.write(state)
    assert file.read() == state
    assert state.best == pytest.approx((0.67, 0.0, 0.52, 0.52), abs=0.01)


@pytest.mark.parametrize("seed", range(5))
async def test_a_loss_late_in_a_comparison_does_not_become_the_shadow(tmp_path: Path, seed: int) -> None:
    """After many checks without a loss evidence of one takes long; at the twentieth all is forgotten."""
    level = (0.5, *BEFORE)
    watched = Watched(tmp_path, policy=level, shadow=level, seed=seed)
    await watched.checks(MAX_COMPARISONS - 3)
    assert (watched.learner.kept, watched.learner.returned) == (0, 0)
    watched.learner.policy[KNOWN] = 0.0
    for _ in range(3):
        await watched.canary.after(await watched._batch())
    assert watched.learner.good[KNOWN] == 0.5, "the ruined policy is not its own shadow"
    await watched.checks_of((0.0, *BEFORE), most=MAX_COMPARISONS)
    assert (watched.learner.kept, watched.learner.returned) == (0, 1)
    assert watched.learner.policy == list(level)


def test_a_family_seems_lost_lately_with_less_than_half_of_enough_right_answers() -> None:
    fine, lost, few = Comparison(16, 6, 2, 2), Comparison(16, 1, 2, 7), Comparison(16, 0, 0, 3)
    found = [
        CanaryState(by_family=tuple((NO_TASKS, each) for each in checks)).may_have_lost_lately
        for checks in (
            [fine] * 5,
            [*[fine] * 4, lost],
            [lost, fine],
            [*[few] * 3, few],
            [few],
            [lost, *[fine] * 5],
            [],
        )
    ]
    assert found == [False, True, False, True, False, False, False]


CHECKED = tuple(Comparison(16, place, 1, 2) for place in range(len(NAMES)))
BEST = (0.8, 0.0, 0.5, 0.4)
ACCOUNTS = HarmRates(
    (OWN.account,),
    (
        PastComparison((OWN.account, OTHER.account), has_harmed=True),
        PastComparison((OWN.account,), has_harmed=False),
    ),
    frozenset({OTHER.account}),
    new_chance=0.25,
    lot=2**64 - 1,
)
STORED = CanaryState(
    checks=2,
    comparisons=1,
    quarantined=(OTHER.account,),
    by_family=(CHECKED,),
    best=BEST,
    accounts=ACCOUNTS,
)


def test_levels_and_results_are_of_the_familys_name_and_level(tmp_path: Path) -> None:
    """Other terms name the same families in another order, others, or one of them twice."""
    path = tmp_path / "canary.json"
    CanaryFile(path, FAMILIES).write(STORED)
    turned = replace(STORED, by_family=(CHECKED[::-1],), best=BEST[::-1])
    assert CanaryFile(path, FAMILIES[::-1]).read() == turned
    new = make_suite("nano", ("binary_matrix",)).families
    more = replace(STORED, by_family=((NO_TASKS, CHECKED[2]),), best=(0.0, BEST[2]))
    assert CanaryFile(path, (*new, FAMILIES[2])).read() == more
    other = replace(STORED, by_family=((NO_TASKS,),), best=(0.0,))
    assert CanaryFile(path, new).read() == other
    twice = replace(STORED, by_family=((CHECKED[0], NO_TASKS),), best=(BEST[0], 0.0))
    assert CanaryFile(path, (FAMILIES[0], FAMILIES[0])).read() == twice
    CanaryFile(path, (FAMILIES[0], FAMILIES[0])).write(replace(twice, best=(0.3, 0.7)))
    assert CanaryFile(path, (FAMILIES[0], FAMILIES[0])).read() == replace(twice, best=(0.3, 0.7))


def test_the_file_of_an_earlier_version_has_families_by_place(tmp_path: Path) -> None:
    """Terms of a running swarm keep the places of their families, and may have further ones."""
    path = tmp_path / "canary.json"
    CanaryFile(path, FAMILIES).write(STORED)
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "by_family": [CHECKED], "best": BEST}))
    assert CanaryFile(path, FAMILIES).read() == STORED
    del plain["accounts"]
    path.write_text(json.dumps({**plain, "by_family": [CHECKED], "best": BEST}))
    assert CanaryFile(path, FAMILIES).read() == replace(STORED, accounts=HarmRates()), "and no accounts"
    new = make_suite("nano", ("binary_matrix",)).families
    nobody = replace(STORED, accounts=HarmRates())
    longer = replace(nobody, by_family=((*CHECKED, NO_TASKS),), best=(*BEST, 0.0))
    assert CanaryFile(path, (*FAMILIES, *new)).read() == longer
    unknown = replace(nobody, by_family=(), best=())
    assert CanaryFile(path, FAMILIES[:2]).read() == unknown, "of which terms nobody knows"


@pytest.mark.parametrize("best", ['"x"', "3", "null"])
@pytest.mark.parametrize("checks", ["[3]", "null", '[{"basic_arithmetic/nano": [1, 2, 3]}]', "[[null, 1]]"])
def test_a_damaged_file_is_no_state(tmp_path: Path, best: str, checks: str) -> None:
    path = tmp_path / "canary.json"
    accounts = '"accounts": {"comparisons": [[["' + OTHER.account.hex() + '"], 1]]}'
    for part in (f'"best": {best}', f'"by_family": {checks}', accounts):
        path.write_text(f'{{"quarantined": [], {part}}}')
        assert CanaryFile(path, FAMILIES).read() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("used", '"x"'),
        ("used", "[1]"),
        ("used", '["0x12"]'),
        ("comparisons", "[[]]"),
        ("comparisons", "[[[], true, 1]]"),
        ("comparisons", '[["x", true]]'),
        ("waiting", "null"),
        ("new_chance", "1.5"),
        ("new_chance", "null"),
        ("lot", '"1"'),
        ("blamed", "[1]"),
        ("blamed", "[[1, 1, 1]]"),
    ],
)
def test_a_file_with_damaged_accounts_is_no_state(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "canary.json"
    path.write_text(
        '{"quarantined": [], "accounts": {"used": [], "comparisons": [[[], true]], "waiting": []}}'
    )
    assert CanaryFile(path, FAMILIES).read() is not None
    path.write_text(f'{{"quarantined": [], "accounts": {{"{name}": {value}}}}}')
    assert CanaryFile(path, FAMILIES).read() is None


def test_accounts_that_waited_in_an_earlier_version_wait_on(tmp_path: Path) -> None:
    """It stored how often harm was blamed on them, and the checks until they were used again."""
    path = tmp_path / "canary.json"
    own, other = OWN.account.hex(), OTHER.account.hex()
    accounts = {"used": [own], "cleared": [own], "blamed": [[other, 3, 5]]}
    path.write_text(json.dumps({"quarantined": [], "accounts": accounts}))
    turns = (PastComparison((OTHER.account,), has_harmed=True),)
    expected = HarmRates((OWN.account,), turns, frozenset({OTHER.account}))
    assert CanaryFile(path, FAMILIES).read() == CanaryState(accounts=expected)
    accounts["blamed"] = []
    path.write_text(json.dumps({"quarantined": [], "accounts": accounts}))
    assert CanaryFile(path, FAMILIES).read() == CanaryState(accounts=HarmRates((OWN.account,)))


@pytest.mark.parametrize("level", ["null", '"1"', "-1", "1.5", "NaN", "[]"])
def test_a_damaged_level_of_the_canary_is_none(tmp_path: Path, level: str) -> None:
    path = tmp_path / "canary.json"
    path.write_text(f'{{"quarantined": [], "best": {{"basic_arithmetic/nano": {level}}}}}')
    assert CanaryFile(path, FAMILIES).read() == CanaryState(best=(0.0,) * len(NAMES))
