"""Known accounts that send as much as they may do not make a node forget whose texts they copy."""

import random

from support.swarm import Identity
from support.traffic import COMPLETIONS, FAMILIES, Writer, rollout

from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.fair_memory import FairMemory
from sapo_verification.screens.near_duplicates import (
    CLEARLY_EARLIER_SECONDS,
    MAX_ARRIVALS,
    NearDuplicates,
)

ALICE, BOB = Identity(1), Identity(2)
LOUD = [Identity(100 + number) for number in range(16)]
ROOM = len(LOUD) * 4 * COMPLETIONS
LATER = CLEARLY_EARLIER_SECONDS + 1


def test_sixteen_accounts_with_very_many_texts_do_not_hide_a_copy() -> None:
    duplicates = NearDuplicates(FAMILIES, b"key", None, ROOM)
    group = Writer(ALICE).group()
    duplicates.note_arrival(ALICE.account, group.content_id, 0.0, live=True)
    assert duplicates.examine(group) is None
    writers = [Writer(each) for each in LOUD]
    for _ in range(6):
        for writer in writers:
            duplicates.examine(writer.group())
    assert len(duplicates) == ROOM
    copy = rollout(BOB, 0, "another question", [completion.decode() for completion in group.completions])
    duplicates.note_arrival(BOB.account, copy.content_id, LATER, live=True)
    assert duplicates.examine(copy) is not None


def test_sixteen_accounts_with_very_many_groups_do_not_hide_the_first_author() -> None:
    duplicates = NearDuplicates(FAMILIES, b"key", None)
    group = Writer(ALICE).group()
    duplicates.note_arrival(ALICE.account, group.content_id, 0.0, live=True)
    assert duplicates.examine(group) is None
    for number in range(2 * MAX_ARRIVALS):
        content = ContentId(number.to_bytes(32, "big"))
        duplicates.note_arrival(LOUD[number % len(LOUD)].account, content, 1.0, live=True)
    copy = rollout(BOB, 0, "another question", [completion.decode() for completion in group.completions])
    duplicates.note_arrival(BOB.account, copy.content_id, LATER, live=True)
    assert duplicates.examine(copy) is not None


def test_the_account_with_most_keys_loses_its_least_recently_used_one() -> None:
    draw, most = random.Random(3), 60
    known = [Identity(number).account for number in range(6)]
    memory = FairMemory[tuple[Account, int], list[int]](
        most, list, lambda key: key[0], lambda _: False, evenly=True
    )
    used: dict[Account, list[int]] = {account: [] for account in known}
    for number in range(3000):
        (account,) = draw.choices(known, [1, 1, 2, 4, 40, 80])
        keys = used[account]
        chosen = draw.choice(keys) if keys and number % 3 == 0 else number
        used[account] = keys = [each for each in keys if each != chosen] + [chosen]
        _, dropped = memory.touch((account, chosen))
        if dropped is not None:
            loser = used[dropped[0]]
            assert len(loser) == max(map(len, used.values()))
            assert loser.pop(0) == dropped[1]
        if number % 7 == 0 and keys:
            memory.pop((account, keys.pop(draw.randrange(len(keys)))))
        assert set(memory) == {(each, key) for each, held in used.items() for key in held}
        assert len(memory) <= most
