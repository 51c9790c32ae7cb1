"""Homes and visits: balance, moves, and attackers' influence."""

from collections import Counter
from hashlib import sha256
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import fixed

from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island

SWARM = SwarmId(b"\x07" * 32)
PERIOD = 24
COUNT = 16
EPOCH = 1000

epochs = st.integers(0, 2**40)
periods = st.integers(1, 2**16)
counts = st.integers(0, 12).map(lambda power: 2**power)


def account(label: str) -> Account:
    return Account(sha256(label.encode()).digest()[:20])


def home(of: Account, epoch: int, count: int = COUNT) -> int:
    drawn = drawing_epoch(SWARM, of, epoch, PERIOD)
    return home_island(SWARM, beacon(SWARM, drawn, b"block %d" % drawn), of, count)


ACCOUNTS = [account(f"account {number}") for number in range(4000)]


@given(fixed(Account), epochs, periods)
def test_homes_are_drawn_before_their_period_and_last_one_period(
    of: Account, epoch: int, period: int
) -> None:
    drawn = drawing_epoch(SWARM, of, epoch, period)
    assert max(0, epoch - period) <= drawn <= max(0, epoch - 1)
    later = [drawing_epoch(SWARM, of, later, period) for later in (epoch + 1, epoch + period)]
    assert later[0] in (drawn, epoch)
    assert later[1] > drawn or epoch == 0 or drawn == 0


@given(fixed(Account), st.integers(2**17, 2**40), st.integers(1, 64))
def test_every_account_is_drawn_again_once_in_a_period(of: Account, epoch: int, period: int) -> None:
    drawn = {drawing_epoch(SWARM, of, epoch + step, period) for step in range(period)}
    assert len(drawn) <= 2
    everything = [drawing_epoch(SWARM, of, epoch + step, period) for step in range(3 * period)]
    assert sorted(everything) == everything
    assert {b - a for a, b in pairwise(everything)} <= {0, period}


def test_accounts_are_distributed_evenly_over_the_islands() -> None:
    sizes = Counter(home(one, EPOCH) for one in ACCOUNTS)
    expected = len(ACCOUNTS) / COUNT
    chi_squared = sum((sizes[island] - expected) ** 2 / expected for island in range(COUNT))
    assert chi_squared < 37.7  # one swarm in a thousand has more at 15 degrees of freedom


def test_one_in_a_period_of_accounts_moves_per_epoch() -> None:
    drawn: Counter[int] = Counter()
    for epoch in range(EPOCH, EPOCH + PERIOD):
        before = [drawing_epoch(SWARM, one, epoch, PERIOD) for one in ACCOUNTS]
        after = [drawing_epoch(SWARM, one, epoch + 1, PERIOD) for one in ACCOUNTS]
        drawn[epoch] = sum(a != b for a, b in zip(before, after, strict=True))
    assert sum(drawn.values()) == len(ACCOUNTS)
    expected = len(ACCOUNTS) / PERIOD
    assert all(0.6 * expected < moved < 1.4 * expected for moved in drawn.values())


@given(fixed(Account), st.integers(1, 2**20), counts)
def test_doubling_divides_an_island_and_halving_merges_two(of: Account, epoch: int, count: int) -> None:
    assert home(of, epoch, 2 * count) % count == home(of, epoch, count)


@given(fixed(NodeId), counts, st.data())
def test_a_visited_island_differs_from_the_home(node: NodeId, count: int, data: st.DataObject) -> None:
    lives = data.draw(st.integers(0, count - 1))
    visits = visited_island(SWARM, beacon(SWARM, 3, b""), node, home=lives, count=count)
    assert 0 <= visits < count
    assert (visits == lives) == (count == 1)


def test_visits_are_distributed_evenly_over_the_other_islands() -> None:
    nodes = [NodeId(sha256(b"node %d" % number).digest()) for number in range(3000)]
    visits = Counter(visited_island(SWARM, beacon(SWARM, 3, b""), one, home=5, count=COUNT) for one in nodes)
    expected = len(nodes) / (COUNT - 1)
    assert set(visits) == set(range(COUNT)) - {5}
    assert all(0.7 * expected < visitors < 1.3 * expected for visitors in visits.values())


@settings(max_examples=20)
@given(st.binary(min_size=1, max_size=8), st.integers(0, COUNT - 1))
def test_keys_made_before_the_beacon_are_spread_by_chance(secret: bytes, target: int) -> None:
    """Whatever the keys are, the beacon that draws their homes comes later."""
    keys = [Account(sha256(secret + b"%d" % number).digest()[:20]) for number in range(320)]
    on_target = sum(home(key, EPOCH) == target for key in keys)
    assert on_target < 20 + 6 * 4.4  # six deviations above the mean of 320 / 16


def test_keys_made_after_the_beacon_cost_as_many_tries_as_there_are_islands_and_scatter_again() -> None:
    gathered: list[Account] = []
    target, tries = 3, 0
    while len(gathered) < 100:
        tries += 1
        key = account(f"try {tries}")
        if home(key, EPOCH) == target:
            gathered.append(key)
    assert 0.7 * COUNT < tries / len(gathered) < 1.3 * COUNT
    left = sum(home(key, EPOCH + PERIOD) == target for key in gathered)
    assert left < 6 + 4 * 2.5  # 100 / 16 are there by chance


@given(fixed(Account), fixed(Account), epochs)
def test_homes_depend_on_the_swarm(one: Account, other: Account, epoch: int) -> None:
    a, b = beacon(SWARM, epoch, b""), beacon(SwarmId(bytes(32)), epoch, b"")
    homes = [home_island(SWARM, a, key, 2**16) for key in (one, other)]
    elsewhere = [home_island(SwarmId(bytes(32)), b, key, 2**16) for key in (one, other)]
    assert one == other or homes != elsewhere
