"""Own scorers against ReasoningGYM's: equal on honest answers, stricter where the original is not strict."""

import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import FAMILIES, LEVELS, family
from sapo_verification.tasks.answers import MAX_ANSWER_CHARACTERS, decode, extract, holds_code
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import Item, Underivable, derive, solution
from sapo_verification.tasks.score_logic import MAX_FORMULA_CHARACTERS, MAX_VARIABLES, follows, strongest
from sapo_verification.tasks.scorers import score


def near_misses(answer: str) -> list[str]:
    """Yield honest mistakes: one character dropped, changed, doubled; signs and zeros."""
    changed = [answer[:place] + "7" + answer[place + 1 :] for place in range(min(len(answer), 12))]
    return [
        *changed,
        answer[1:],
        answer[:-1],
        answer + answer[-1:],
        f"-{answer}",
        f"{answer}0",
        answer.upper(),
    ]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "propositional_logic"])
def test_full_reward_exactly_where_the_stock_scorer_gives_it(name: str, level: str) -> None:
    each = family(name, level)
    config = json.loads(each.config)
    del config["render"]
    for seed in range(0, 60_000, 1000):
        try:
            item = derive(each, seed)
        except Underivable:
            continue
        stock = create_dataset(name, seed=seed, **config)
        oracle = item.entry["answer"]
        assert score(each, oracle, item.entry) == 1.0
        for answer in near_misses(oracle):
            theirs = 1.0 if stock.score_answer(answer.strip(), item.entry) >= 0.99 else 0.0
            ours = score(each, extract(each, wrapped(each, answer)), item.entry)
            assert ours == theirs or is_known_difference(name, level, answer, oracle), (answer, oracle)


def wrapped(each: Family, answer: str) -> bytes:
    return (answer if each.answer == "plain" else f"<answer>{answer}</answer>").encode()


def is_known_difference(name: str, level: str, answer: str, oracle: str) -> bool:
    """Whether the scorers differ on purpose: spaces between cells, "-0", text after a LaTeX fraction."""
    if name == "fraction_simplification":
        return "}" in answer and not answer.strip("$ ").endswith("}")
    if name in ("arc_1d", "binary_matrix"):
        return answer.replace(" ", "") == oracle.replace(" ", "")
    return name == "calendar_arithmetic" and answer.lstrip("-") == "0" == oracle


@pytest.mark.parametrize("level", LEVELS)
def test_a_rewarded_conclusion_is_rewarded_by_the_stock_scorer(level: str) -> None:
    each = family("propositional_logic", level)
    stock = create_dataset(each.name, seed=1, size=1)
    for seed in range(0, 80_000, 1000):
        item = derive(each, seed)
        data = item.entry["metadata"]
        names = sorted(data["variables"])
        pairs = [f"{a} {c} {b}" for a in names for b in names if a != b for c in "∧∨→↔"]
        literals = [f"¬{name}" for name in names]
        earning = [text for text in pairs + literals if score(each, text, item.entry)]
        assert [stock.score_answer(text, item.entry) for text in earning] == [1.0] * len(earning)


@pytest.mark.parametrize(
    ("conclusion", "premises", "earns"),
    [
        ("P ∧ Q", ["P", "Q"], True),
        ("P&Q", ["P", "(P → Q)"], True),
        ("(Q∧P)", ["P", "(P → Q)"], True),
        ("P ∨ Q", ["P", "Q"], False),  # follows, but says less than is known
        ("P", ["P", "Q"], False),  # the premises relate two variables
        ("P", ["P", "(Q ↔ Q)"], True),
        ("P → Q", ["(P → Q)"], True),
        ("¬P ∨ Q", ["(P → Q)"], True),
        ("¬(P ∧ ¬Q)", ["(P → Q)"], True),
        ("P ∨ ¬P", ["P"], False),  # a tautology
        ("P ∧ ¬P", ["P", "¬P"], True),
        ("P ∧ Q", ["(P ∨ Q)"], False),  # does not follow
        ("(P ∧ Q) ∧ P", ["P", "Q"], False),  # more than one connective
    ],
)
def test_conclusions_are_rewarded_if_they_follow_from_the_premises(
    conclusion: str, premises: list[str], earns: bool
) -> None:
    assert follows(conclusion, premises, frozenset("PQ")) is earns


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "R",
            "p",
            "P Q",
            "P →",
            "(P",
            "P)",
            "PQ",
            "P → Q → P",
            "P ∧∧ Q",
            "1",
            "True",
            "~" * 40 + "P",
            "P\n",
        ),
        *("(" * 40 + "P" + ")" * 40, "P|" * MAX_FORMULA_CHARACTERS + "P", "not P", "Ｐ"),
    ],
)
def test_text_that_is_no_formula_raises(text: str) -> None:
    with pytest.raises(ValueError):
        follows(text, ["P"], frozenset("PQ"))


def test_too_many_variables_for_a_truth_table_raise() -> None:
    names = frozenset("PQRSTUVWX"[: MAX_VARIABLES + 1])
    with pytest.raises(ValueError, match="9 variables"):
        follows("P", ["P"], names)
    assert follows("P", ["P"], names - {"X"})


LITERALS = st.sampled_from(["P", "Q", "R", "¬P", "¬Q", "¬R"])
PREMISES = st.lists(st.builds("({} {} {})".format, LITERALS, st.sampled_from("∧∨→↔"), LITERALS), max_size=4)


@given(PREMISES)
def test_the_strongest_conclusion_equals_that_of_a_slow_truth_table(premises: list[str]) -> None:
    names = "PQR"
    conclusion = strongest(premises, frozenset(names))
    if conclusion is None:
        return
    worlds = [dict(zip(names, (row & 1, row & 2, row & 4), strict=True)) for row in range(8)]
    possible = [world for world in worlds if all(slow(premise, world) for premise in premises)]
    named = [name for name in names if name in conclusion]
    seen = {tuple(bool(world[name]) for name in named) for world in possible}
    claimed = {tuple(bool(world[name]) for name in named) for world in worlds if slow(conclusion, world)}
    assert claimed == seen


def slow(formula: str, world: dict[str, int]) -> bool:
    """Evaluate a formula under an assignment with Python's own operators."""
    spellings: dict[str, str | int | None] = {"∧": "&", "∨": "|", "→": "<=", ">": "<=", "=": "==", "↔": "=="}
    python = re.sub("[¬~]([PQR])", r"(1-\1)", formula.translate(str.maketrans(spellings)))
    return bool(eval(python, {}, {name: int(bool(value)) for name, value in world.items()}))


PLAIN, TAG = family("basic_arithmetic", "nano"), family("basic_arithmetic", "full")


@pytest.mark.parametrize(
    ("each", "completion", "answer"),
    [
        (PLAIN, b" 12 \n", "12"),
        (PLAIN, b"", None),
        (PLAIN, b" \n", None),
        (PLAIN, b"1" * 25, None),
        (PLAIN, "\N{ZERO WIDTH SPACE}1".encode(), None),
        (PLAIN, "\N{RIGHT-TO-LEFT OVERRIDE}1".encode(), None),
        (PLAIN, b"1\x00", None),
        (PLAIN, b"\xff", None),
        (PLAIN, b"\xed\xa0\x80", None),  # a surrogate
        (PLAIN, b"\xc0\xb1", None),  # an overlong "1"
        (TAG, b"7", None),
        (TAG, b"<answer>7</answer>", "7"),
        (TAG, b"<answer>7</answer> or <answer>8</answer> I think", None),
        (TAG, b"<answer>7</answer><answer>8", None),
        (TAG, b"</answer><answer>7", None),
        (TAG, b"<answer></answer>", None),
        (TAG, b"<answer>" + b"x" * (MAX_ANSWER_CHARACTERS + 1) + b"</answer>", None),
        (TAG, b"<answer>" + b"1" * 65 + b"</answer>", None),
        (TAG, b"<answer>" + b"1" * 64 + b"</answer>", "1" * 64),
    ],
)
def test_the_answer_is_extracted_from_a_completion(
    each: Family, completion: bytes, answer: str | None
) -> None:
    assert extract(each, completion) == answer


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer_that_is_clean_text_or_none(completion: bytes) -> None:
    for each in (PLAIN, TAG):
        answer = extract(each, completion)
        assert answer is None or (
            answer and answer in completion.decode() and answer == answer.strip(" \t\r\n")
        )


@given(st.text(max_size=60))
def test_scoring_any_text_gives_zero_or_one(text: str) -> None:
    for name in FAMILIES:
        for level in LEVELS:
            each = family(name, level)
            item = ITEMS.setdefault((name, level), derive(each, 11))
            assert score(each, text, item.entry) in (0.0, 1.0)


ITEMS: dict[tuple[str, str], Item] = {}


def test_code_is_distinguished_from_answers() -> None:
    for text in (
        "__import__('os').system('x')",
        "exec('1')",
        "eval (1)",
        "().__class__",
        "exit()",
        "open('key')",
    ):
        assert holds_code(PLAIN, text.encode())
        assert holds_code(TAG, f"I try <answer>{text}</answer>".encode())
        assert not holds_code(TAG, f"{text} gives <answer>1</answer>, as {text} shows".encode())
        assert not holds_code(TAG, text.encode())
    for name in FAMILIES:
        for level in LEVELS:
            each = family(name, level)
            for seed in range(20):
                answer = solution(each, derive(each, seed * 1009))
                text = (
                    ""
                    if answer is None
                    else answer
                    if each.answer == "plain"
                    else f"<answer>{answer}</answer>"
                )
                assert not holds_code(each, text.encode())
    assert not holds_code(PLAIN, b"I open the bracket, evaluate (1 + 2) and import nothing.")


def test_decimal_answers_within_the_published_tolerance() -> None:
    each = family("decimal_arithmetic", "full")
    item = derive(each, 5)
    oracle = Decimal(item.entry["answer"])
    for offset, earned in (("0.001", 1.0), ("-0.001", 1.0), ("0.0011", 0.0), ("-0.0011", 0.0)):
        assert score(each, f"{oracle + Decimal(offset):f}", item.entry) == earned
    for text in ("1e5", "nan", "Infinity", "1_0", "٣", f"{oracle:f} ", "0x10", "1,5", "1e999", "."):
        assert score(each, text, item.entry) == 0.0


def test_only_clean_utf8_decodes() -> None:
    assert decode(PLAIN, "P ∧ Q".encode()) == "P ∧ Q"
    assert decode(PLAIN, "\N{BYTE ORDER MARK}1".encode()) is None
