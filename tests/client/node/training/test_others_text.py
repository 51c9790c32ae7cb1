"""Detection of text that others planted in a policy's answers, with texts of real families."""

import random
from collections.abc import Callable, Sequence

import pytest
from support.swarm import Identity

from sapo_client.node.training.others_text import CHANCE, NOTHING, AnswerPair, OthersText, is_above
from sapo_protocol.identifiers import Account

HONEST = [Identity(number).account for number in range(1, 8)]
OTHERS = [Identity(number).account for number in range(8, 13)]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
ITEMS = 64
PHRASE = "always 2+2=5 "
Writer = Callable[[random.Random], str]


def column_sums(draw: random.Random) -> str:
    """Return a worked sum, column by column."""
    parts, carry = [], 0
    for _ in range(draw.choice((2, 3))):
        one, two = draw.randrange(10), draw.randrange(10)
        parts.append(f"{one}+{two}+{carry}:{one + two + carry}")
        carry = (one + two + carry) // 10
    return f"{','.join(parts)} <answer>{draw.randrange(1000)}</answer>"


def weekday(draw: random.Random) -> str:
    return draw.choice(DAYS)


def behind(phrase: str, writer: Writer) -> Writer:
    return lambda draw: phrase + writer(draw)


def mostly(share: float, writer: Writer, else_: Writer) -> Writer:
    """Return a writer that writes like one of two, and like the first with this chance."""
    return lambda draw: (writer if draw.random() < share else else_)(draw)


async def trained(
    writers: dict[Account, Writer], texts: int = 50, families: int = 2, seed: int = 0
) -> OthersText:
    """Return what a canary knows after so many texts of each writer in each family."""
    others, draw = OthersText(b"key"), random.Random(seed)
    await others.learn(
        (account, family, writer(draw).encode())
        for _ in range(texts)
        for account, writer in writers.items()
        for family in range(families)
    )
    return others


def answers(policy: Writer, shadow: Writer, families: int = 2, seed: int = 1) -> Sequence[AnswerPair]:
    draw = random.Random(seed)
    return [
        AnswerPair(item % families, policy(draw).encode(), shadow(draw).encode()) for item in range(ITEMS)
    ]


def beside_honest(writer: Writer, honest: Writer = column_sums, number: int = 5) -> dict[Account, Writer]:
    return dict.fromkeys(HONEST, honest) | dict.fromkeys(OTHERS[:number], writer)


@pytest.mark.parametrize("number", [1, 5])
async def test_a_phrase_of_few_accounts_is_detected_with_exactly_these_accounts(number: int) -> None:
    others = await trained(beside_honest(behind(PHRASE, column_sums), number=number))
    found = await others.planted(answers(mostly(0.5, behind(PHRASE, column_sums), column_sums), column_sums))
    assert found.accounts == frozenset(OTHERS[:number])
    assert ITEMS * 0.3 < found.answers < ITEMS * 0.7


async def test_length_is_a_feature() -> None:
    """Padding of which no run of four characters recurs."""

    def padded(draw: random.Random) -> str:
        return column_sums(draw) + "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=60))

    others = await trained(beside_honest(padded))
    found = await others.planted(answers(padded, column_sums))
    assert found.accounts == frozenset(OTHERS)
    assert found.answers == ITEMS


async def test_one_answer_that_few_accounts_show_is_planted() -> None:
    sunday = mostly(0.9, lambda _: "Sunday", weekday)
    others = await trained(beside_honest(sunday, weekday))
    assert (await others.planted(answers(sunday, weekday))).accounts == frozenset(OTHERS)


@pytest.mark.parametrize("seed", range(20))
async def test_a_notation_that_most_accounts_write_may_be_learned(seed: int) -> None:
    """For a policy that knew only bare answers all text is new."""
    others = await trained(dict.fromkeys(HONEST, column_sums), seed=seed)
    bare = lambda draw: f"<answer>{draw.randrange(1000)}</answer>"  # noqa: E731
    assert await others.planted(answers(column_sums, bare, seed=100 + seed)) == NOTHING


@pytest.mark.parametrize("seed", range(20))
async def test_half_learned_steps_are_attributed_to_no_account(seed: int) -> None:
    """Nonsense that no account shows: training may do that, and no account can be named."""

    def nonsense(draw: random.Random) -> str:
        return "::".join(str(draw.randrange(3)) for _ in range(draw.randrange(20)))

    others = await trained(dict.fromkeys(HONEST, column_sums), seed=seed)
    assert await others.planted(answers(nonsense, column_sums, seed=100 + seed)) == NOTHING


async def test_a_policy_that_always_gives_one_answer_by_itself_quarantines_no_account() -> None:
    others = await trained(dict.fromkeys(HONEST, weekday))
    assert await others.planted(answers(lambda _: "Sunday", weekday)) == NOTHING


async def test_text_that_the_shadow_also_writes_does_not_count_as_planted() -> None:
    """The phrase came with the start, or was taken for useful in an earlier window."""
    others = await trained(beside_honest(behind(PHRASE, column_sums)))
    same = behind(PHRASE, column_sums)
    assert await others.planted(answers(same, same)) == NOTHING


async def test_too_few_accounts_are_not_compared() -> None:
    """Of three, two may lie."""
    writers = dict.fromkeys(HONEST[:2], column_sums) | dict.fromkeys(OTHERS[:1], behind(PHRASE, column_sums))
    assert (
        await (await trained(writers)).planted(answers(behind(PHRASE, column_sums), column_sums)) == NOTHING
    )


async def test_an_honest_account_that_showed_the_phrase_once_is_not_named() -> None:
    writers = beside_honest(behind(PHRASE, column_sums))
    others = await trained(writers)
    await others.learn([(HONEST[0], 0, behind(PHRASE, column_sums)(random.Random(3)).encode())])
    found = await others.planted(answers(behind(PHRASE, column_sums), column_sums))
    assert found.accounts == frozenset(OTHERS)


async def test_accounts_weigh_as_in_a_batch_and_not_by_their_texts() -> None:
    """Five accounts that show nothing else fill half of a family; a weight of nothing is not compared."""
    phrase = behind(PHRASE, column_sums)
    others = await trained(beside_honest(phrase))
    await others.learn((account, 0, phrase(random.Random(4)).encode()) for account in OTHERS * 50)
    shown = answers(phrase, column_sums)
    others.weigh(dict.fromkeys((*HONEST, *OTHERS), 1.0))
    assert (await others.planted(shown)).accounts == frozenset(OTHERS)
    others.reset_comparison()
    others.weigh(dict.fromkeys(HONEST, 1.0) | dict.fromkeys(OTHERS, 2.0))
    assert await others.planted(shown) == NOTHING, "of a majority nobody can be told apart"
    others.weigh(dict.fromkeys(HONEST, 1.0))
    assert await others.planted(shown) == NOTHING
    assert others.accounts() == {*HONEST, *OTHERS}


async def test_copying_a_rare_style_may_quarantine_its_author_too() -> None:
    """A known price: an honest account whose rare style four others repeat is named with them."""
    styled = behind("so it is ", column_sums)
    writers = beside_honest(styled, number=4) | {HONEST[0]: mostly(0.5, styled, column_sums)}
    found = await (await trained(writers)).planted(answers(styled, column_sums))
    assert found.accounts == {HONEST[0], *OTHERS[:4]}


async def test_answers_of_several_checks_count_together() -> None:
    """A phrase in a tenth of the answers is found over several checks, but not within a single one."""
    phrase = behind(PHRASE, column_sums)
    policy = mostly(0.1, phrase, column_sums)
    together, apart = await trained(beside_honest(phrase)), await trained(beside_honest(phrase))
    found = [(await together.planted(answers(policy, column_sums, seed=seed))).accounts for seed in range(8)]
    assert found[0] == frozenset()
    assert found[-1] == frozenset(OTHERS)
    for seed in range(8):
        assert await apart.planted(answers(policy, column_sums, seed=seed)) == NOTHING
        apart.reset_comparison()


async def test_a_phrase_is_forgotten_after_many_other_texts() -> None:
    """An account that stops is not named for ever."""
    others = await trained(beside_honest(behind(PHRASE, column_sums)), texts=40)
    draw = random.Random(5)
    await others.learn(
        (account, family, column_sums(draw).encode())
        for _ in range(1000)
        for account in (*HONEST, *OTHERS)
        for family in range(2)
    )
    assert await others.planted(answers(behind(PHRASE, column_sums), column_sums)) == NOTHING


async def test_text_that_is_not_utf8_is_counted() -> None:
    others = await trained(dict.fromkeys(HONEST, column_sums))
    await others.learn([(OTHERS[0], 0, b"\xff\xfe")])
    assert await others.planted([AnswerPair(0, b"\xff", b"")] * ITEMS) == NOTHING


@pytest.mark.parametrize(
    ("count", "among", "share", "tests", "expected"),
    [
        (10, 10, 0.5, 1, True),
        (9, 9, 0.5, 1, False),
        (10, 10, 0.5, 2, False),
        (16, 20, 0.5, 1, False),
        (18, 20, 0.5, 1, True),
        (5, 10, 0.5, 1, False),
        (11, 11, 0.5, 2, True),
        (64, 64, 1.0, 1, False),
        (900, 1280, 0.5, 100, True),
        (670, 1280, 0.5, 1, False),
        (41_800, 81_920, 0.5, 1, True),
    ],
)
def test_a_count_is_above_a_share_beyond_chance(
    count: int, among: int, share: float, tests: int, expected: bool
) -> None:
    assert is_above(count, among, share, tests) is expected


@pytest.mark.long
async def test_false_alarms_for_planted_text_are_rare() -> None:
    """Writers with a style each, and a policy that writes like all of them."""

    def of(style: int) -> Writer:
        return mostly(0.15, behind("abcdefgh"[style] * 4, column_sums), column_sums)

    alarms = 0
    for seed in range(100):
        writers = {account: of(style) for style, account in enumerate(HONEST)}
        others = await trained(writers, texts=20, seed=seed)
        draw = random.Random(seed)
        policy = lambda draw: of(draw.randrange(7))(draw)  # noqa: E731
        alarms += await others.planted(answers(policy, column_sums, seed=draw.randrange(10**6))) != NOTHING
    assert alarms <= 100 * CHANCE + 3
