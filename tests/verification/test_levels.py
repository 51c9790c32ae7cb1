"""Levels: families allowed by a slot's lot, pay, and counting of groups in a swarm with ladders."""

from dataclasses import replace

import pytest
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from support.verification_harness import WRONG, VerificationHarness

from sapo_protocol import merkle
from sapo_protocol.errors import LocalProtocolError, Reason, RemoteProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Limits
from sapo_protocol.rules import Rule
from sapo_protocol.terms.difficulty import Difficulty, LevelRecord, Outcomes
from sapo_verification.levels import Levels
from sapo_verification.reputation.evidence import Evidence
from sapo_verification.types import VerifiedRollout

ALICE, BOB, CAROL = Identity(1), Identity(2), Identity(3)
LIVE = [ALICE.account, BOB.account]
SUITE = make_suite(families=("basic_arithmetic", "base_conversion", "fraction_simplification"))
LADDER = Difficulty(ladders=((0, 1),), floor=500, groups=3, completions=2)
MANIFEST = make_manifest(version=2, suite=SUITE, difficulty=LADDER)


class LadderHarness(VerificationHarness):
    """An engine of a swarm whose first two families are a ladder."""

    def family_of(self, author: Identity, slot: int) -> int:
        """Return the level of the ladder that a slot has."""
        return min(self.engine.levels.families_of(EPOCH, author.account, slot))

    async def group(
        self, author: Identity, slot: int, *, right: int, wrong: int, family: int | None = None
    ) -> VerifiedRollout:
        """Verify a group at the slot's level, or of another family."""
        chosen = self.family_of(author, slot) if family is None else family
        answers = (self.solution(author.account, slot, chosen),) * right + (WRONG,) * wrong
        message = author.message(self.manifest, slot=slot, family=chosen, completions=answers)
        return await self.engine.verify(self.engine.admit_own(message, moment(self.manifest)))


def harness() -> LadderHarness:
    return LadderHarness((ALICE, BOB, CAROL), manifest=MANIFEST)


def test_without_ladders_every_slot_may_have_every_family() -> None:
    levels = Levels(make_manifest(), lambda _: None, lambda _: None)
    assert list(levels.families_of(EPOCH, ALICE.account, 0)) == list(range(len(make_suite().families)))
    assert levels.record(EPOCH) is None
    assert levels.is_known(EPOCH)


def test_slots_have_one_level_of_a_ladder_each_and_all_other_families() -> None:
    node = harness()
    drawn = [node.engine.levels.families_of(EPOCH, ALICE.account, slot) for slot in range(32)]
    assert set(drawn) == {(0, 2), (1, 2)}


def test_an_unknown_record_causes_no_penalty() -> None:
    for beacon, record in ((None, LADDER.start(3)), (Digest(bytes(32)), None)):
        levels = Levels(MANIFEST, {EPOCH: beacon}.get, {EPOCH: record}.get)
        assert levels.is_known(EPOCH) is (record is not None)
        with pytest.raises(RemoteProtocolError) as refused:
            levels.families_of(EPOCH, ALICE.account, 0)
        assert refused.value.rule is Rule.BEACON_KNOWN


async def test_a_rollout_at_another_level_than_its_slots_is_refused() -> None:
    node = harness()
    other = 1 - node.family_of(ALICE, 0)
    with pytest.raises(RemoteProtocolError) as refused:
        await node.group(ALICE, 0, right=1, wrong=1, family=other)
    assert refused.value.rule is Rule.ASSIGNED_LEVEL
    assert [reason for reason, _, _ in node.record.refusals] == [Reason.OFF_LEVEL]
    assert node.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, 0.0, 0, EPOCH)
    assert node.engine.count.points_by_level(EPOCH, LIVE, 16, LADDER.start(3)) == ()
    assert node.engine.count.outcomes(EPOCH, LIVE, 3) == (Outcomes(),) * 3


async def test_a_right_answer_is_paid_by_its_levels_value_regardless_of_the_others() -> None:
    node = harness()
    paid = [
        await node.group(ALICE, 0, right=3, wrong=0, family=2),
        await node.group(ALICE, 1, right=1, wrong=2, family=2),
        await node.group(BOB, 0, right=2, wrong=0, family=2),
    ]
    await node.group(BOB, 1, right=0, wrong=3, family=2)
    await node.group(BOB, 2, right=1, wrong=0, family=2)  # too few completions to count
    await node.group(CAROL, 0, right=2, wrong=0, family=2)  # not registered
    count, hard = node.engine.count, LADDER.start(3)
    mastered = (*hard[:2], LevelRecord(8, 0, 0, 1000))
    assert count.points_by_level(EPOCH, LIVE, 16, hard) == tuple(
        sorted(((ALICE.account, 2), (BOB.account, 1)))
    )
    assert count.points_by_level(EPOCH, LIVE, 1, hard) == tuple(
        sorted(((ALICE.account, 1), (BOB.account, 1)))
    )
    assert count.points_by_level(EPOCH, LIVE, 16, mastered) == ((ALICE.account, 1),)
    assert count.outcomes(EPOCH, LIVE, 3)[2] == Outcomes(1, 1, 0)  # neither the first nor the last
    assert count.evidence(EPOCH, ALICE.account) == {paid[0].content_id, paid[1].content_id}
    carols = await node.group(CAROL, 1, right=0, wrong=2, family=2)
    assert carols.content_id not in count.evidence(EPOCH, CAROL.account)


async def test_a_bounded_number_of_an_accounts_groups_counts_for_a_familys_difficulty() -> None:
    node = harness()
    for slot in (9, 7, 5, 3, 1):
        await node.group(ALICE, slot, right=0, wrong=2, family=2)
    for slot in (8, 6):
        await node.group(ALICE, slot, right=2, wrong=0, family=2)
    for slot in (0, 2, 4):
        await node.group(BOB, slot, right=1, wrong=1, family=2)
    await node.group(BOB, 10, right=2, wrong=0, family=2)
    assert node.engine.count.outcomes(EPOCH, LIVE, 3)[2] == Outcomes(0, 1, 1)
    node.engine.count.forget(before_epoch=EPOCH + 1)
    assert node.engine.count.outcomes(EPOCH, LIVE, 3) == (Outcomes(),) * 3


async def test_code_among_wrong_answers_makes_no_level_harder() -> None:
    node = harness()
    code = b"<answer>__import__('os').system('true')</answer>"
    message = ALICE.message(MANIFEST, slot=0, family=2, completions=(code, code))
    await node.engine.verify(node.engine.admit_own(message, moment(MANIFEST)))
    assert [reason for reason, _, _ in node.record.refusals] == [Reason.CODE_IN_ANSWER]
    assert node.engine.count.outcomes(EPOCH, LIVE, 3)[2] == Outcomes()


async def test_the_evidence_root_covers_all_paid_rollouts() -> None:
    node = harness()
    paid = [await node.group(ALICE, slot, right=2, wrong=slot % 2, family=2) for slot in range(4)]
    await node.group(ALICE, 4, right=0, wrong=2, family=2)
    root = merkle.root(sorted(Digest(verified.content_id) for verified in paid))
    assert node.engine.count.evidence_root(EPOCH) == root


def test_a_swarm_whose_groups_are_too_small_to_count_is_not_founded() -> None:
    with pytest.raises(LocalProtocolError, match="none would count"):
        replace(MANIFEST, limits=Limits(slots_per_epoch=32, max_completions=1, points_per_epoch=16))
