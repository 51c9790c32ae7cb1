"""Memory of accounts: newcomers use at most half of it, and a known account is no longer a newcomer."""

import gc
import random
from collections import OrderedDict

from support.swarm import Identity

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import FairMemory

MOST = 8
ACCOUNTS = [Identity(number).account for number in range(60)]


class Heard:
    """A memory of numbers by account, and which accounts are newcomers."""

    def __init__(self, known: list[Account]) -> None:
        self.known = set(known)
        self.memory: FairMemory[Account, list[int]] = FairMemory(
            MOST, list, lambda account: account, lambda account: account not in self.known
        )

    def hear(self, *accounts: Account) -> list[Account | None]:
        """Receive accounts in turn; return the dropped account for each."""
        dropped: list[Account | None] = []
        for number, account in enumerate(accounts):
            value, gone = self.memory.touch(account)
            value.append(number)
            dropped.append(gone)
        return dropped


def test_any_number_of_newcomers_displaces_only_newcomers() -> None:
    heard = Heard(ACCOUNTS[:4])
    heard.hear(*ACCOUNTS[:4])
    assert heard.hear(*ACCOUNTS[4:]) == [*[None] * 4, *ACCOUNTS[4:-4]]
    assert set(heard.memory) == {*ACCOUNTS[:4], *ACCOUNTS[-4:]}


def test_known_accounts_displace_newcomers_down_to_half_and_then_known_ones() -> None:
    heard = Heard(ACCOUNTS[:20])
    heard.hear(*ACCOUNTS[20:28])
    assert heard.hear(*ACCOUNTS[:6]) == [*ACCOUNTS[20:24], *ACCOUNTS[:2]]
    assert set(heard.memory) == {*ACCOUNTS[2:6], *ACCOUNTS[24:28]}


def test_the_most_recent_entries_are_kept_with_their_values() -> None:
    heard = Heard(ACCOUNTS[:9])
    heard.hear(*ACCOUNTS[:8])
    assert heard.hear(ACCOUNTS[0], ACCOUNTS[8]) == [None, ACCOUNTS[1]]
    assert heard.memory.get(ACCOUNTS[0]) == [0, 0]
    assert heard.memory.get(ACCOUNTS[1]) is None
    assert heard.memory.pop(ACCOUNTS[0]) == [0, 0]
    assert heard.memory.pop(ACCOUNTS[0]) is None
    assert list(heard.memory.values()) == [[each] for each in (2, 3, 4, 5, 6, 7, 1)]


def test_an_account_that_became_known_is_not_dropped_as_a_newcomer() -> None:
    heard = Heard([])
    heard.hear(*ACCOUNTS[:8])
    heard.known.add(ACCOUNTS[0])
    assert heard.hear(ACCOUNTS[8]) == [ACCOUNTS[1]]
    assert dict(heard.memory.items())[ACCOUNTS[0]] == [0]


def test_the_memory_is_bounded_for_any_accounts() -> None:
    heard, draw = Heard([]), random.Random(1)
    for _ in range(3000):
        heard.hear(draw.choice(ACCOUNTS))
        if draw.random() < 0.01:
            heard.known ^= {draw.choice(ACCOUNTS)}
        assert len(heard.memory) == len(set(heard.memory)) <= MOST


def test_an_account_with_many_keys_leaves_nothing_behind_for_smaller_numbers_of_them() -> None:
    """An empty dictionary stayed for each number of keys that an account once had: nearly half of
    the memory of one account's arrivals."""
    before = _ordered_dictionaries()
    memory: FairMemory[tuple[Account, int], object] = FairMemory(
        512, object, lambda key: key[0], lambda _: False, evenly=True
    )
    for number in range(1024):
        memory.touch((ACCOUNTS[0], number))
    for number in range(512, 1024, 2):
        memory.pop((ACCOUNTS[0], number))
    assert list(memory) == [(ACCOUNTS[0], number) for number in range(513, 1024, 2)]
    assert _ordered_dictionaries() - before == 4  # known, new, the account's keys, and who has so many


def _ordered_dictionaries() -> int:
    gc.collect()
    return sum(type(each) is OrderedDict for each in gc.get_objects())
