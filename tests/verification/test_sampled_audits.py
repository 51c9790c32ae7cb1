"""Audits by sample between engines: commitments and provided groups of accounts, and auditors' pay."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from support.swarm import EPOCH, Identity, make_chain_manifest
from support.verification_harness import VerificationHarness

from sapo_protocol.audits.commitment import Commitment, commit, deadline_seconds
from sapo_protocol.audits.draw import is_drawn
from sapo_protocol.audits.groups import GroupRequest, OpenedGroup
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import Task
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.topics import commitments_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.admission.sampled_audits import DrawnAccount
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.verifier import CheckResult

MANIFEST = make_chain_manifest(version=2, audits=AuditTerms(samples=4, one_in=1))
TOPIC = commitments_topic(MANIFEST.swarm_id)
ALICE, BOB, ALICES_OTHER = Identity(1), Identity(2), Identity(1, key=1)
DRAW = Digest(bytes(32))
AT = deadline_seconds(MANIFEST, EPOCH) - 1
WHOLE = Fraction(1)


def _node(own: Identity, *known: Identity) -> VerificationHarness:
    """Return the engine of a node that receives only a test's messages."""
    return VerificationHarness((ALICE, BOB, ALICES_OTHER, *known), MANIFEST, own=own.account)


async def _worked(own: Identity, right: Sequence[int], dull: Sequence[int] = ()) -> VerificationHarness:
    node = _node(own)
    for slot in right:
        await node.engine.verify(node.admit(own, slot))
    for slot in dull:
        await node.engine.verify(node.admit(own, slot, right=2, wrong=0))
    return node


def _hear(node: VerificationHarness, author: Identity, commitment: Commitment, at: float = AT) -> Received:
    message = seal(Kind.COMMITMENT, MANIFEST.swarm_id, commitment.to_payload(), author.seed).to_bytes()
    return node.engine.receive(TOPIC, message, at)


def _content(message: bytes) -> ContentId:
    return parse_envelope(message, MANIFEST.swarm_id).content_id


def _request(drawn: DrawnAccount) -> GroupRequest:
    return GroupRequest(drawn.commitment.account, EPOCH, drawn.slots)


async def _paid(auditor: VerificationHarness, drawn: DrawnAccount, groups: Sequence[OpenedGroup]) -> int:
    """Return what an account is paid for what was shown of it."""
    sampled = auditor.engine.sampled
    judged = [await sampled.check(drawn.commitment, group, AT) for group in groups]
    good = {one.slot for one in judged if one is not None and one.is_payable}
    return sampled.points(drawn, len(set(drawn.slots) - good), None)


def _drawn(auditor: VerificationHarness, account: Identity) -> DrawnAccount:
    [drawn] = auditor.engine.sampled.drawn(EPOCH, DRAW, {account.account})
    return drawn


async def test_a_correct_commitment_is_paid_in_full() -> None:
    alice, auditor = await _worked(ALICE, right=range(6), dull=(6, 7)), _node(BOB)
    commitment = alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, WHOLE)
    assert commitment is not None
    assert commitment.slots == tuple(range(6))
    assert [_hear(node, ALICE, commitment).verdict for node in (alice, auditor)] == [Verdict.ACCEPT] * 2
    drawn = _drawn(auditor, ALICE)
    groups = alice.engine.sampled.open_groups(_request(drawn))
    assert len(groups) == 4
    assert await _paid(auditor, drawn, groups) == 6
    assert await _paid(auditor, drawn, groups) == 6  # asked a second time, after a restart for example
    assert alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, WHOLE) is None


async def test_a_commitment_has_at_most_the_groups_that_the_bond_is_paid_for() -> None:
    alice = await _worked(ALICE, right=range(6))
    commitment = alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, Fraction(1, 4))
    assert commitment is not None
    assert commitment.slots == (0, 1, 2, 3)  # a quarter of sixteen points
    assert alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, Fraction(0)) is None


async def test_of_an_accounts_nodes_the_one_with_the_lowest_key_commits_to_the_groups_of_all() -> None:
    first, second = sorted((ALICE, ALICES_OTHER), key=lambda one: one.node)
    node = await _worked(first, right=(0, 2))
    received = node.receive(second, 1)
    assert received.verdict is Verdict.ACCEPT
    await node.engine.verify(node.engine.audits.take().admitted)  # checked before it is committed to
    sampled = node.engine.sampled
    assert sampled.own_commitment(second.node, ALICE.account, EPOCH, WHOLE) is None
    commitment = sampled.own_commitment(first.node, ALICE.account, EPOCH, WHOLE)
    assert commitment is not None
    assert commitment.slots == (0, 1, 2)


async def test_claiming_missing_groups_is_deducted_twice() -> None:
    alice, auditor = await _worked(ALICE, right=range(6)), _node(BOB)
    messages = {slot: alice.message(ALICE, slot) for slot in range(6)}
    groups = {slot: _content(message) for slot, message in messages.items()}
    groups |= {slot: ContentId(bytes([slot]) * 32) for slot in range(6, 12)}
    commitment = commit(ALICE.node, ALICE.account, EPOCH, groups.items())
    assert _hear(auditor, ALICE, commitment).verdict is Verdict.ACCEPT
    tree, drawn = ContentTree(list(groups.values())), _drawn(auditor, ALICE)
    shown = [OpenedGroup(messages[slot], tree.path(slot)) for slot in drawn.slots if slot < 6]
    failed = 4 - len(shown)
    assert await _paid(auditor, drawn, shown) == 12 * max(0, 4 - 2 * failed) // 4
    assert await _paid(auditor, drawn, ()) == 0  # who shows nothing
    one = next(slot for slot in drawn.slots if slot < 6)
    elsewhere = [OpenedGroup(messages[one], tree.path(slot)) for slot in drawn.slots if slot != one]
    assert [await auditor.engine.sampled.check(commitment, group, AT) for group in elsewhere] == [None] * 3


async def test_a_group_in_two_slots_counts_in_its_own_alone() -> None:
    """The same six groups for slots 0 to 5 and again for 6 to 11, each with that slot's path."""
    alice, auditor = await _worked(ALICE, right=range(6)), _node(BOB)
    messages = {slot: alice.message(ALICE, slot % 6) for slot in range(12)}
    groups = {slot: _content(message) for slot, message in messages.items()}
    commitment = commit(ALICE.node, ALICE.account, EPOCH, groups.items())
    assert _hear(auditor, ALICE, commitment).verdict is Verdict.ACCEPT
    tree, drawn = ContentTree(list(groups.values())), _drawn(auditor, ALICE)
    failed = sum(slot >= 6 for slot in drawn.slots)
    assert failed
    shown = [OpenedGroup(messages[slot], tree.path(slot)) for slot in drawn.slots]
    assert await _paid(auditor, drawn, shown) == 12 * max(0, 4 - 2 * failed) // 4
    as_first = [OpenedGroup(messages[slot], tree.path(slot % 6)) for slot in drawn.slots]
    assert await _paid(auditor, drawn, as_first) == 12 * max(0, 4 - 2 * failed) // 4


async def test_a_proven_equivocator_is_paid_nothing() -> None:
    alice, auditor = await _worked(ALICE, right=range(6)), _node(BOB)
    commitment = alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, WHOLE)
    assert commitment is not None
    for node in (alice, auditor):
        _hear(node, ALICE, commitment)
    drawn = _drawn(auditor, ALICE)
    groups = alice.engine.sampled.open_groups(_request(drawn))
    assert await _paid(auditor, drawn, groups) == 6
    assert auditor.receive(ALICE, 9).verdict is Verdict.ACCEPT
    assert auditor.receive(ALICE, 9, right=2).proof is not None
    assert await _paid(auditor, drawn, groups) == 0


async def test_a_group_that_is_all_right_or_forged_fails() -> None:
    alice, auditor = await _worked(ALICE, right=(), dull=(0,)), _node(BOB)
    [message] = alice.engine.envelopes.of(ALICE.account, EPOCH)
    commitment = commit(ALICE.node, ALICE.account, EPOCH, [(0, _content(message))])
    assert _hear(auditor, ALICE, commitment).verdict is Verdict.ACCEPT
    drawn = _drawn(auditor, ALICE)
    forged = message[:-64] + bytes(64)
    assert await auditor.engine.sampled.check(commitment, OpenedGroup(forged, ()), AT) is None
    assert await _paid(auditor, drawn, [OpenedGroup(message, ())]) == 0


@pytest.mark.parametrize(
    ("busy", "wrong", "points"), [(0, 1, 8), (1, 1, 6), (2, 1, 4), (4, 1, 0), (0, 0, 4), (1, 0, 2), (2, 0, 0)]
)
async def test_an_undecided_group_is_neither_paid_nor_deducted(busy: int, wrong: int, points: int) -> None:
    """Of eight groups four are drawn; the last of these fails where it has no wrong answer."""
    alice, auditor = await _worked(ALICE, right=range(7)), _node(BOB)
    messages = {slot: alice.message(ALICE, slot) for slot in range(7)}
    messages[7] = alice.message(ALICE, 7, right=2, wrong=wrong)
    groups = [(slot, _content(message)) for slot, message in messages.items()]
    commitment = commit(ALICE.node, ALICE.account, EPOCH, groups)
    drawn = DrawnAccount(commitment, (1, 3, 5, 7))
    tree = ContentTree([content for _, content in groups])
    asked: list[Task] = []

    async def score(task: Task, completions: Sequence[bytes]) -> CheckResult:
        asked.append(task)
        if len(asked) <= busy:
            raise CheckFailed(Failure.NODE_BUSY)
        return await auditor.score(task, completions)

    auditor.check = score
    shown = [OpenedGroup(messages[slot], tree.path(slot)) for slot in drawn.slots]
    judged = [await auditor.engine.sampled.check(commitment, group, AT) for group in shown]
    payable = [one and one.is_payable for one in judged]
    assert payable == [*([None] * busy + [True] * 4)[:3], None if busy == 4 else bool(wrong)]
    failed = payable.count(False)
    assert auditor.engine.sampled.points(drawn, failed, None, undecided=busy) == points
    assert auditor.reputation.evidence(ALICE.account, EPOCH).bad == 0.0


async def test_of_two_commitments_none_counts_and_a_late_one_is_ignored() -> None:
    auditor = _node(BOB)
    one, other = (
        commit(ALICE.node, ALICE.account, EPOCH, [(0, ContentId(bytes([number]) * 32))]) for number in (1, 2)
    )
    late = _hear(auditor, ALICE, one, deadline_seconds(MANIFEST, EPOCH) + 1)
    assert (late.verdict, late.rule) == (Verdict.IGNORE, Rule.COMMITMENT_IN_TIME)
    assert _hear(auditor, ALICE, one).verdict is Verdict.ACCEPT
    assert auditor.engine.sampled.commitments.accounts(EPOCH) == (ALICE.account,)
    assert _hear(auditor, ALICE, other).verdict is Verdict.ACCEPT
    assert auditor.engine.sampled.commitments.accounts(EPOCH) == ()
    assert auditor.engine.sampled.drawn(EPOCH, DRAW, {ALICE.account}) == ()
    auditor.engine.forget(EPOCH + 3)
    assert not auditor.engine.sampled.commitments.has(ALICE.account, EPOCH)


async def test_another_member_provides_the_groups_of_an_absent_author() -> None:
    alice, member, auditor = await _worked(ALICE, right=range(3)), _node(BOB), _node(BOB)
    commitment = alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, WHOLE)
    assert commitment is not None
    for node in (member, auditor):
        _hear(node, ALICE, commitment)
    drawn = _drawn(auditor, ALICE)
    for slot in (0, 1):
        member.receive(ALICE, slot)
    assert member.engine.sampled.open_groups(_request(drawn)) == ()  # one is missing: no path leads anywhere
    member.receive(ALICE, 2)
    groups = member.engine.sampled.open_groups(_request(drawn))
    assert await _paid(auditor, drawn, groups) == 3


async def test_only_registered_accounts_that_the_draw_takes_are_drawn() -> None:
    terms = AuditTerms(samples=4, one_in=2)
    manifest = make_chain_manifest(version=2, audits=terms)
    accounts = [Identity(number) for number in range(1, 9)]
    auditor = VerificationHarness(tuple(accounts), manifest, own=BOB.account)
    topic = commitments_topic(manifest.swarm_id)
    for one in accounts:
        commitment = commit(one.node, one.account, EPOCH, [(0, ContentId(bytes(32)))])
        message = seal(Kind.COMMITMENT, manifest.swarm_id, commitment.to_payload(), one.seed).to_bytes()
        assert auditor.engine.receive(topic, message, AT).verdict is Verdict.ACCEPT
    registered = {one.account for one in accounts[:6]}
    taken = {account for account in registered if is_drawn(DRAW, account, terms)}
    assert 0 < len(taken) < len(registered)
    drawn = auditor.engine.sampled.drawn(EPOCH, DRAW, registered)
    assert {one.commitment.account for one in drawn} == taken


async def test_committing_to_a_group_of_another_account_or_epoch_is_not_paid() -> None:
    alice, bob = await _worked(ALICE, right=(0,)), await _worked(BOB, right=(0,))
    auditor = await _worked(BOB, right=(0,))
    [of_bob] = bob.engine.envelopes.of(BOB.account, EPOCH)
    [of_alice] = alice.engine.envelopes.of(ALICE.account, EPOCH)
    stolen = commit(ALICE.node, ALICE.account, EPOCH, [(0, _content(of_bob))])
    late = commit(ALICE.node, ALICE.account, EPOCH + 1, [(0, _content(of_alice))])
    check = auditor.engine.sampled.check
    assert await check(stolen, OpenedGroup(of_bob, ()), AT) is None
    assert await check(late, OpenedGroup(of_alice, ()), AT) is None


async def test_without_the_beacon_of_the_epoch_a_group_is_undecided() -> None:
    alice, auditor = await _worked(ALICE, right=(0,)), _node(BOB)
    [message] = alice.engine.envelopes.of(ALICE.account, EPOCH)
    commitment = commit(ALICE.node, ALICE.account, EPOCH, [(0, _content(message))])
    auditor.knows_beacons = False
    assert await auditor.engine.sampled.check(commitment, OpenedGroup(message, ()), AT) is None


@pytest.mark.parametrize("slots", [(7,), (0, 7)])
async def test_groups_outside_the_commitment_are_not_opened(slots: tuple[int, ...]) -> None:
    alice = await _worked(ALICE, right=(0,))
    commitment = alice.engine.sampled.own_commitment(ALICE.node, ALICE.account, EPOCH, WHOLE)
    assert commitment is not None
    _hear(alice, ALICE, commitment)
    asked = GroupRequest(ALICE.account, EPOCH, slots)
    assert alice.engine.sampled.open_groups(asked) == ()
    assert alice.engine.sampled.open_groups(GroupRequest(BOB.account, EPOCH, (0,))) == ()
