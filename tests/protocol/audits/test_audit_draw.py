"""Audits by sample: the content of a commitment, the draw, and the points of its result."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed
from support.swarm import make_chain_manifest, make_manifest

from sapo_protocol.audits.commitment import Commitment, commit, open_commitment
from sapo_protocol.audits.draw import drawn_slots, is_drawn, sampled_points
from sapo_protocol.audits.groups import (
    GroupRequest,
    OpenedGroup,
    parse_group_request,
    parse_opened_groups,
)
from sapo_protocol.audits.tree import ContentTree, is_path_valid
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId, SwarmId
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.difficulty import Difficulty

slots = st.lists(st.integers(0, 65_535), min_size=1, max_size=40, unique=True).map(sorted)
terms = st.builds(AuditTerms, st.integers(1, 8), st.integers(0, 16).map(lambda power: 1 << power))
SWARM = SwarmId(bytes(range(32)))


def _contents(count: int) -> list[ContentId]:
    return [ContentId(sha256(b"%d" % number).digest()) for number in range(count)]


@given(fixed(NodeId), fixed(Account), st.integers(0, 2**64 - 1), slots)
def test_a_commitment_is_parsed_from_its_encoding(
    node: NodeId, account: Account, epoch: int, taken: list[int]
) -> None:
    made = commit(node, account, epoch, zip(taken, _contents(len(taken)), strict=True))
    root = ContentTree(_contents(len(taken))).root
    assert made == Commitment(node, account, epoch, tuple(taken), root)
    message = seal(Kind.COMMITMENT, SWARM, made.to_payload(), bytes(32)).to_bytes()
    assert open_commitment(parse_envelope(message, SWARM, also=Kind.COMMITMENT)) == made


@pytest.mark.parametrize("slot", [-1, 65_536])
def test_a_slot_beyond_a_commitment_is_refused(slot: int) -> None:
    made = commit(NodeId(bytes(32)), Account(bytes(20)), 0, zip((3, slot), _contents(2), strict=True))
    with pytest.raises(LocalProtocolError, match="slots of a commitment are 0 to 65535"):
        made.to_payload()


@given(slots, st.data())
def test_a_path_proves_one_content_in_one_slot(taken: list[int], data: st.DataObject) -> None:
    contents = _contents(len(taken))
    tree = ContentTree(contents)
    made = commit(NodeId(bytes(32)), Account(bytes(20)), 0, zip(taken, contents, strict=True))
    place = data.draw(st.integers(0, len(taken) - 1))
    path = tree.path(place)
    holding = [
        slot for slot in range(65_536) if slot in made.slots and made.holds(slot, contents[place], path)
    ]
    assert holding == [taken[place]]
    assert not made.holds(taken[place], ContentId(bytes(32)), path)
    assert not made.holds(taken[place], contents[place], (*path, Digest(bytes(32))))
    if path:
        assert not made.holds(taken[place], contents[place], path[:-1])


def test_a_branch_is_not_accepted_as_content() -> None:
    """A leaf hashes 33 bytes behind 0x02, a branch 65 behind 0x03."""
    first, second, third, fourth = _contents(4)
    tree = ContentTree([first, second, third, fourth])
    inner = ContentTree([first, second]).root
    assert not is_path_valid(tree.root, ContentId(inner), index=0, count=2, path=tree.path(0)[1:])


@given(fixed(Digest), fixed(Account), slots, terms)
def test_a_draw_has_distinct_slots_and_at_most_all_of_them(
    drawn: Digest, account: Account, taken: list[int], asked: AuditTerms
) -> None:
    found = drawn_slots(drawn, account, tuple(taken), asked)
    assert sorted(set(found)) == list(found)
    assert set(found) <= set(taken)
    assert len(found) == min(asked.samples, len(taken))
    if is_drawn(drawn, account, asked) and asked.one_in > 1:
        assert is_drawn(drawn, account, replace(asked, one_in=asked.one_in // 2))


def test_each_slot_is_drawn_equally_often() -> None:
    accounts = [Account(number.to_bytes(20, "big")) for number in range(4096)]
    drawn, every = Digest(bytes(32)), AuditTerms(4, 1)
    chosen = sum(is_drawn(drawn, account, AuditTerms(4, 4)) for account in accounts)
    assert abs(chosen - 1024) < 5 * 28  # five standard deviations
    hits = [0] * 10
    for account in accounts:
        for slot in drawn_slots(drawn, account, tuple(range(10)), every):
            hits[slot] += 1
    assert all(abs(count - 0.4 * 4096) < 5 * 32 for count in hits)


@given(terms, st.integers(1, 600), st.data())
def test_points_follow_the_formula(asked: AuditTerms, committed: int, data: st.DataObject) -> None:
    drawn = min(asked.samples, committed)
    failed, cap = data.draw(st.integers(0, drawn)), data.draw(st.integers(0, 600))
    undecided = data.draw(st.integers(0, drawn - failed))
    points = sampled_points(committed, drawn, failed, cap=cap, terms=asked, undecided=undecided)
    share = max(0, drawn - 2 * failed - undecided) / drawn
    assert points == asked.one_in * min(cap, int(committed * share + 1e-9))
    assert points <= sampled_points(committed, drawn, 0, cap=cap, terms=asked)


@given(fixed(Account), st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**32), min_size=1, max_size=8))
def test_requests_are_parsed_from_their_encoding(account: Account, epoch: int, asked: list[int]) -> None:
    request = GroupRequest(account, epoch, tuple(asked))
    assert parse_group_request(request.to_bytes()) == request


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\xff",
        encode(()),
        encode((bytes(19), 1, (1,))),
        encode((bytes(20), 1, ())),
        encode((bytes(20), 1, tuple(range(9)))),
        encode((bytes(20), 1, (b"1",))),
        encode((bytes(20), b"1", (1,))),
        encode((bytes(20), 1, (1,), 1)),
    ],
)
def test_any_other_bytes_are_not_a_request(request_: bytes) -> None:
    assert parse_group_request(request_) is None


def test_invalid_groups_of_a_response_are_dropped() -> None:
    good = OpenedGroup(b"message", (Digest(bytes(32)), Digest(bytes(31) + b"\x01")))
    alone = OpenedGroup(b"message", ())
    bad = [
        b"",
        b"\xff",
        encode(()),
        encode((1,)),
        encode((b"m", bytes(31))),
        encode((b"m", *[bytes(32)] * 17)),
    ]
    deep = OpenedGroup(b"m", (Digest(bytes(32)),) * 16)
    given = [*bad, good.to_bytes(), alone.to_bytes()]
    assert parse_opened_groups(given) == (good, alone)
    assert parse_opened_groups([deep.to_bytes()]) == (deep,)
    assert parse_opened_groups([alone.to_bytes()] * 9) == (alone,) * 8


def test_a_manifest_defines_how_auditors_sample() -> None:
    manifest = make_chain_manifest(version=2, audits=AuditTerms(4, 16))
    assert manifest_from_json(manifest_to_json(manifest)) == manifest
    assert manifest.swarm_id != make_chain_manifest(version=2).swarm_id
    assert manifest.points_cap == 16 * manifest.limits.points_per_epoch
    assert make_manifest().points_cap == make_manifest().limits.points_per_epoch


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": 1}, "version 1"),
        ({"finality_seconds": 31}, "finality_seconds of more than 30"),
        ({"epoch_seconds": 601, "finality_seconds": 452}, "finality_seconds of more than 451"),
        ({"limits": replace(make_manifest().limits, slots_per_epoch=65_537)}, "room for 65536 slots"),
        ({"difficulty": Difficulty(((0, 1),), 250, 125, 32, 2)}, "ladders count groups"),
    ],
)
def test_a_swarm_that_cannot_be_sampled_is_refused(changes: dict[str, object], why: str) -> None:
    sound = {"version": 2, "audits": AuditTerms(4, 1), "epoch_seconds": 60}
    with pytest.raises(LocalProtocolError, match=why):
        make_chain_manifest(**(sound | changes))
    with pytest.raises(LocalProtocolError, match="no chain"):
        make_manifest(version=2, audits=AuditTerms(4, 1))


def test_a_commitment_has_room_for_as_many_slots_as_it_says() -> None:
    limits = replace(make_manifest().limits, slots_per_epoch=65_536)
    manifest = make_chain_manifest(version=2, audits=AuditTerms(4, 1), epoch_seconds=60, limits=limits)
    assert manifest.limits == limits


@pytest.mark.parametrize(("samples", "one_in"), [(0, 1), (9, 1), (4, 0), (4, 3), (4, 131_072)])
def test_terms_out_of_bounds_are_refused(samples: int, one_in: int) -> None:
    with pytest.raises(LocalProtocolError):
        AuditTerms(samples, one_in)
