"""Own scorers of other than the paper's families: strict, and never more generous than the originals."""

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import family, levels
from sapo_verification.suites.families import KINDS
from sapo_verification.tasks.bundled import create_dataset
from sapo_verification.tasks.generators import derive, solution
from sapo_verification.tasks.own_generators import OWN_GENERATORS
from sapo_verification.tasks.score_arithmetic import Polynomial, derivative, parse
from sapo_verification.tasks.scorers import score

OWN = [name for name, kind in KINDS.items() if kind.scorer != "stock/1"]

LAYOUT = ("words/1", "list/1", "queens/1")
"""These ignore spaces and line ends between cells, some of which the stock scorers count as mistakes."""


def near_misses(answer: str) -> list[str]:
    """Yield honest mistakes: one character dropped, changed, doubled; two swapped."""
    changed = [answer[:place] + "7" + answer[place + 1 :] for place in range(min(len(answer), 10))]
    swapped = [answer[:place] + answer[place : place + 2][::-1] + answer[place + 2 :] for place in range(4)]
    return [*changed, *swapped, answer[1:], answer[:-1], answer + answer[-1:], f"-{answer}", f"{answer}0"]


@pytest.mark.parametrize("name", [name for name in OWN if name not in OWN_GENERATORS])
def test_rewarded_answers_are_rewarded_by_the_stock_scorer(name: str) -> None:
    each = family(name, "full")
    config = json.loads(each.config)
    del config["render"]
    stock = create_dataset(name, seed=1, **config)
    for item in (derive(each, seed * 1009) for seed in range(1, 9)):
        answer = solution(each, item)
        for text in near_misses(answer) if answer else []:
            if score(each, text.strip(), item.entry) == 1.0:
                theirs = stock.score_answer(text.strip(), dict(item.entry))
                assert theirs >= 0.99 or is_known_difference(each, text, item.entry["answer"]), (text, answer)


def is_known_difference(each: Family, text: str, oracle: str) -> bool:
    """Whether the stock scorer refuses a right solution for its notation."""
    if each.scorer in LAYOUT:
        return "".join(text.split()) == "".join(oracle.split())
    if each.scorer == "number/1":
        return float(text.replace(",", "")) == float(oracle.replace(",", ""))
    return each.name == "sokoban" and text.startswith(oracle)


def entry(answer: str = "", **metadata: Any) -> dict[str, Any]:
    return {"answer": answer, "metadata": metadata}


BOARD = "+ + + + + \n+ * @ X + \n+ - - - + \n+ + + + + \n"
CARS = "BBoooo" + "oooooo" + "AAoCoo" + "oooCoo" + "oooooo" + "oooooo"
SURVO: dict[str, Any] = {
    "puzzle": [[0, 0, 7], [3, 0, 7], [5, 9, 14]],
    "board_size": 3,
    "candidate_numbers": [2, 5, 4],
}


@pytest.mark.parametrize(
    ("name", "answer", "given", "earns"),
    [
        ("chain_sum", "3,037", entry("3037"), True),
        ("chain_sum", "3037.0", entry("3037"), True),
        ("chain_sum", "30,37", entry("3037"), False),
        ("chain_sum", "3_037", entry("3037"), False),
        ("power_function", "8.97e+11", entry("897303639322.6414"), True),
        ("power_function", "8.98e+11", entry("897303639322.6414"), False),
        ("power_function", "8.97e12", entry("897303639322.6414"), False),
        ("bitwise_arithmetic", "0xA0A039", entry("0xa0a039"), True),
        ("bitwise_arithmetic", "a0a039", entry("0xa0a039"), False),
        ("prime_factorization", "3 * 71 * 3", entry(factors=[3, 3, 71]), True),
        ("prime_factorization", "639", entry(factors=[3, 3, 71]), False),
        ("prime_factorization", "9 x 71", entry(factors=[3, 3, 71]), False),
        ("complex_arithmetic", "8 - 8i", entry(result=(8, -8)), True),
        ("complex_arithmetic", "-i", entry(result=(0, -1)), True),
        ("complex_arithmetic", "5.00i", entry(result=(0.0, 5.0)), True),
        ("complex_arithmetic", "5", entry(result=(5, 0)), True),
        ("complex_arithmetic", "nan", entry(result=(5, 0)), False),
        ("complex_arithmetic", "8 + 8i", entry(result=(8, -8)), False),
        ("coin_flip", "4/16", entry(rational={"numerator": 1, "denominator": 4}), True),
        ("coin_flip", ".25", entry(rational={"numerator": 1, "denominator": 4}), True),
        ("coin_flip", "0", entry(rational={"numerator": 1, "denominator": 32768}), False),
        ("coin_flip", "0.0000305", entry(rational={"numerator": 1, "denominator": 32768}), False),
        ("coin_flip", "3.0518e-5", entry(rational={"numerator": 1, "denominator": 32768}), True),
        ("polynomial_equations", "0, -0.04", entry(real_solutions=[-0.04, 0.0]), True),
        ("polynomial_equations", "0", entry(real_solutions=[-0.04, 0.0]), False),
        ("polynomial_equations", "None", entry(real_solutions=[]), True),
        ("polynomial_equations", "none", entry(real_solutions=[1.0]), False),
        ("polynomial_equations", "1", entry(real_solutions=[]), False),
        ("countdown", "49*(85 - 1)/14", entry(numbers=[1, 14, 49, 85], target=294), True),
        ("countdown", "294", entry(numbers=[1, 14, 49, 85], target=294), False),
        ("countdown", "49*6*1", entry(numbers=[1, 14, 49, 85], target=294), False),
        ("puzzle24", "4*6*1*1", entry(numbers=[9, 2, 3, 3]), False),
        ("puzzle24", "9*2+3+3", entry(numbers=[9, 2, 3, 3]), True),
        ("puzzle24", "8/(3-8/3)", entry(numbers=[8, 3, 8, 3]), True),
        ("puzzle24", "3**3-3/1", entry(numbers=[3, 3, 3, 1]), False),
        ("polynomial_multiplication", "x**2 - 1", entry("-1 + x**2"), True),
        ("polynomial_multiplication", "(x + 1)*(x - 1)", entry("x**2 - 1"), False),
        ("polynomial_multiplication", "x*x - 1", entry("x**2 - 1"), True),
        ("polynomial_multiplication", "x**2 - 1 + x - x", entry("x**2 - 1"), False),
        ("simple_integration", "x**2 + C", entry(variable="x", integrand="2*x"), True),
        ("simple_integration", "x*x + 7", entry(variable="x", integrand="2*x"), True),
        ("simple_integration", "2*x", entry(variable="x", integrand="2*x"), False),
        ("simple_integration", "x**2 + y", entry(variable="x", integrand="2*x"), False),
        ("simple_integration", "(y+z+1)*0 + x**2", entry(variable="x", integrand="2*x"), False),
        ("simple_integration", "X**2 + x**2 - X**2", entry(variable="x", integrand="2*x"), False),
        ("simple_integration", "X**2", entry(variable="X", integrand="2*X"), True),
        ("kakurasu", "1 0\n0 1", entry(n_rows=2, n_cols=2, row_sums=[1, 2], col_sums=[1, 2]), True),
        ("kakurasu", "0 1\n1 0", entry(n_rows=2, n_cols=2, row_sums=[1, 2], col_sums=[1, 2]), False),
        (
            "kakurasu",
            "the grid:\n1 0\n0 1",
            entry(n_rows=2, n_cols=2, row_sums=[1, 2], col_sums=[1, 2]),
            False,
        ),
        ("survo", "2 5 7\n3 4 7\n5 9 14", entry(**SURVO), True),
        ("survo", "5 2 7\n3 4 7\n5 9 14", entry(**SURVO), False),
        ("survo", "3 4 7\n3 4 7\n5 9 14", entry(**SURVO), False),
        ("palindrome_generation", "YXY", entry(letters=["x", "y", "y"]), True),
        ("palindrome_generation", "yy", entry(letters=["x", "y", "y"]), False),
        ("cryptarithm", "A=1, B=2", entry(words_letters=["A", "A"], result_letters="B"), True),
        ("cryptarithm", "A=0,B=0", entry(words_letters=["A", "A"], result_letters="B"), False),
        ("cryptarithm", "A=1,A=2,B=4", entry(words_letters=["A", "A"], result_letters="B"), False),
        ("sokoban", "R", entry(gamestr=BOARD), True),
        ("sokoban", "DUR", entry(gamestr=BOARD), True),
        ("sokoban", "LR", entry(gamestr=BOARD), False),  # the wall is in the way
        ("sokoban", "RR", entry(gamestr=BOARD), False),  # and here
        ("sokoban", "D", entry(gamestr=BOARD), False),
        ("rush_hour", "C+1 A+4", entry(board_config=CARS), True),
        ("rush_hour", "C-1 A+4", entry(board_config=CARS), False),  # still in the way
        ("rush_hour", "A+4", entry(board_config=CARS), False),
        ("rush_hour", "C+5 A+4", entry(board_config=CARS), False),  # off the board
        ("rush_hour", "B-1 C+1 A+4", entry(board_config=CARS), False),
        ("rush_hour", "Z+1", entry(board_config=CARS), False),
        ("rush_hour", "x+1 C+1 A+4", entry(board_config=CARS.replace("BB", "xx")), False),  # a wall
    ],
)
def test_answers_get_the_reward_of_their_vector(
    name: str, answer: str, given: Mapping[str, Any], earns: bool
) -> None:
    assert score(family(name, levels(name)[-1]), answer, given) == float(earns)


POWERS = re.compile(r"([A-Za-z])\*\*([0-9]+)")


@pytest.mark.parametrize("level", ["easy", "full"])
@pytest.mark.parametrize("name", ["polynomial_multiplication", "simple_integration"])
def test_usual_spellings_of_a_polynomial_are_rewarded_by_both_scorers(name: str, level: str) -> None:
    each = family(name, level)
    config = json.loads(each.config)
    del config["render"]
    stock = create_dataset(name, seed=1, **config)
    for seed in range(1, 40_000, 1009):
        item = derive(each, seed)
        oracle = item.entry["answer"]
        spelled = POWERS.sub(lambda power: "*".join([power[1]] * int(power[2])), oracle)
        ways = [oracle, spelled, oracle.replace(" ", "")]
        if name == "simple_integration":
            ways += [f"({oracle.removesuffix(' + C')})", f"-(-({spelled.removesuffix(' + C')})*6)/6 + C"]
        paid = [(score(each, way, item.entry), stock.score_answer(way, dict(item.entry))) for way in ways]
        assert paid == [(1.0, 1.0)] * len(ways), oracle


HEAVY = "(x+1)**32*0+"
"""It adds nothing to an answer, and takes 1,056 products of terms."""

LIGHT = "x**32*0+"
"""It takes 32."""


@pytest.mark.parametrize(
    ("answer", "earns"),
    [
        (f"{HEAVY}{LIGHT * 30}x**30*0+x**2", True),  # 2,048 products
        (f"{HEAVY}{LIGHT * 30}x**30*0+x**2*1", False),  # one more
        (f"{HEAVY * 2}x**2", False),
        (f"x**2+{HEAVY * 30}1", False),
        ("(a+b+1)**18*0+" * 3 + "x**2", False),
        ("((x+1)**10*(x+1)**11*0+" * 6 + "x**2" + ")" * 6, False),
        ("((x+1)**16*(x+1)**16+" * 3 + "0*(x+1)" + ")*0" * 3 + "+x**2", False),
    ],
)
def test_an_answer_is_right_only_if_it_takes_few_products(answer: str, earns: bool) -> None:
    """The bound is one of products, so that every machine scores alike, however fast it is."""
    given = entry(variable="x", integrand="2*x")
    assert score(family("simple_integration", "full"), answer, given) == float(earns)


SMALL = st.integers(-9, 9)


@given(st.lists(SMALL, min_size=1, max_size=5), st.lists(SMALL, min_size=1, max_size=5), SMALL)
def test_polynomials_multiply_and_differentiate_as_their_values_do(
    left: list[int], right: list[int], point: int
) -> None:
    """Evaluated at a point, by Horner's rule and the product rule."""
    product = parse(f"({written(left)})*({written(right)})")
    assert value(product, point) == horner(left, point) * horner(right, point)
    slope = horner(derived(left), point) * horner(right, point) + horner(left, point) * horner(
        derived(right), point
    )
    assert value(derivative(product), point) == slope


def written(coefficients: Sequence[int]) -> str:
    return " + ".join(
        f"{number}*x**{power}" if number >= 0 else f"({number})*x**{power}"
        for power, number in enumerate(coefficients)
    )


def derived(coefficients: Sequence[int]) -> list[int]:
    return [power * number for power, number in enumerate(coefficients)][1:] or [0]


def horner(coefficients: Sequence[int], point: int) -> int:
    total = 0
    for number in reversed(coefficients):
        total = total * point + number
    return total


def value(polynomial: Polynomial, point: int) -> Fraction:
    terms = (coefficient * point ** len(monomial) for monomial, coefficient in polynomial.items())
    return sum(terms, Fraction(0))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "1 +",
            "(1",
            "(1 x",
            "1)",
            "1 2",
            "x y",
            "1//2",
            "1/0",
            "1/x",
            "x**-1",
            "x**y",
            "x**33",
            "9**9**9",
            "**",
        ),
        *("(" * 20 + "1" + ")" * 20, "-" * 40 + "1", "1" * 13, "1.5", "__import__('os')", "２", "x=1"),
        *("(x+y+z)**32", "(1" + "+1" * 300 + ")", "*".join(["99999999999"] * 40)),
    ],
)
def test_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
