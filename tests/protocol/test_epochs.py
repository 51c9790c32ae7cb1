"""Epochs by their edges, beacons, and the task that a slot holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed, uint64
from support.swarm import EPOCH, EPOCH_SECONDS, GENESIS_SECONDS, make_manifest
from support.verdicts import reason_of

from sapo_protocol.constants import CLOCK_SLACK_SECONDS, SEED_BITS
from sapo_protocol.epochs import beacon, epoch_at, epoch_start_seconds, require_current, tagged_digest
from sapo_protocol.errors import LocalProtocolError, Reason
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_protocol.tasks import Task, assigned_task

MANIFEST = make_manifest()
START = epoch_start_seconds(MANIFEST, EPOCH)


@given(st.integers(0, 2**40), st.floats(0, 0.999))
def test_a_time_is_in_one_epoch(epoch: int, part: float) -> None:
    now = epoch_start_seconds(MANIFEST, epoch) + int(part * EPOCH_SECONDS)
    assert epoch_at(MANIFEST, now) == epoch
    assert epoch_start_seconds(MANIFEST, epoch) <= now < epoch_start_seconds(MANIFEST, epoch + 1)


def test_there_is_no_epoch_before_genesis() -> None:
    assert epoch_at(MANIFEST, GENESIS_SECONDS) == 0
    with pytest.raises(LocalProtocolError):
        epoch_at(MANIFEST, GENESIS_SECONDS - 0.001)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (START - CLOCK_SLACK_SECONDS - 0.01, Reason.EPOCH_FUTURE),
        (START - CLOCK_SLACK_SECONDS, None),
        (START, None),
        (START + EPOCH_SECONDS, None),
        (START + 2 * EPOCH_SECONDS, None),
        (START + 2 * EPOCH_SECONDS + CLOCK_SLACK_SECONDS - 0.01, None),
        (START + 2 * EPOCH_SECONDS + CLOCK_SLACK_SECONDS, Reason.EPOCH_PAST),
    ],
)
def test_an_epochs_rollouts_are_admitted_in_it_and_the_next_with_slack(
    now: float, reason: Reason | None
) -> None:
    assert reason_of(require_current, MANIFEST, EPOCH, now) is reason


@given(uint64, st.floats(0, 1e11))
def test_at_most_three_epochs_are_admitted_at_once(epoch: int, now: float) -> None:
    reasons = [reason_of(require_current, MANIFEST, epoch + step, now) for step in range(5)]
    assert reasons.count(None) <= 3
    assert reasons == sorted(reasons, key=[Reason.EPOCH_PAST, None, Reason.EPOCH_FUTURE].index)


@given(fixed(SwarmId), fixed(SwarmId), uint64, uint64, st.binary(max_size=32), st.binary(max_size=32))
def test_a_beacon_depends_on_swarm_epoch_and_block(
    a: SwarmId, b: SwarmId, m: int, n: int, x: bytes, y: bytes
) -> None:
    assert (beacon(a, m, x) == beacon(b, n, y)) == ((a, m, x) == (b, n, y))


def test_beacon_of_a_worked_example() -> None:
    swarm = SwarmId(b"\x01" * 32)
    assert beacon(swarm, 5, b"block") == tagged_digest("beacon", swarm, bytes(7) + b"\x05" + b"block")
    assert beacon(swarm, 5, b"block") != tagged_digest("seed", swarm, bytes(7) + b"\x05" + b"block")


PLACE = (SwarmId(b"\x01" * 32), Digest(b"\x02" * 32), Account(b"\x03" * 20), 4, 5)
places = st.tuples(
    fixed(SwarmId), fixed(Digest), fixed(Account), st.integers(0, 255), st.integers(0, 2**32 - 1)
)


@given(places, st.integers(0, 4))
def test_account_epoch_family_and_slot_determine_the_seed(place: tuple[object, ...], part: int) -> None:
    """31 bits collide once in two billion; the draws here are few."""
    other = (*PLACE[:part], place[part], *PLACE[part + 1 :])
    same = assigned_task(*other).seed == assigned_task(*PLACE).seed  # type: ignore[arg-type]
    assert same == (other == PLACE)


@given(places)
def test_tasks_name_their_family_and_a_seed_in_range(
    place: tuple[SwarmId, Digest, Account, int, int],
) -> None:
    task = assigned_task(*place)
    assert task == Task(place[3], task.seed)
    assert 0 <= task.seed < 2**SEED_BITS


def test_seed_of_a_worked_example() -> None:
    swarm, random, account, family, slot = PLACE
    digest = tagged_digest("seed", swarm, random, account, bytes((0, family)), bytes((0, 0, 0, slot)))
    assert assigned_task(*PLACE).seed == int.from_bytes(digest[:8], "big") >> 33


def test_a_new_beacon_changes_every_seed() -> None:
    """An epoch's tasks cannot be known before its beacon."""
    tasks = {
        assigned_task(PLACE[0], beacon(PLACE[0], epoch, b""), PLACE[2], 0, slot).seed
        for epoch in range(50)
        for slot in range(20)
    }
    assert len(tasks) == 1000
