"""The numbers of rules agree in specification, code and vectors."""

import re
from pathlib import Path

import pytest
from architecture.rules_page import PAGE, page
from reference.vectors import admission_files, load

from sapo_protocol.rules import Rule
from sapo_verification.reputation.penalties import CONSEQUENCES, HARD, SOFT, verdict

ROOT = Path(__file__).parents[1]
SPECIFICATION = (ROOT / "protocol/README.md").read_text(encoding="utf-8")
VERIFICATION = (ROOT / "verification/README.md").read_text(encoding="utf-8")
THREATS = (ROOT / "docs/security/threat-model.md").read_text(encoding="utf-8")

SOURCES = [
    path.read_text(encoding="utf-8")
    for name in ("protocol", "verification", "client")
    for path in (ROOT / name).rglob("*.py")
    if path.name != "rules.py"
]
EVIDENCE = {0.0: "", SOFT: "soft", HARD: "hard"}


def _rows(text: str, first_cell: str) -> list[list[str]]:
    """The cells of every table row whose first cell is of a form."""
    lines = (line for line in text.splitlines() if re.match(rf"\| {first_cell} \|", line))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _section(number: str) -> str:
    """A subsection of the specification."""
    return SPECIFICATION.partition(f"### {number} ")[2].partition("\n### ")[0]


SPECIFIED = _rows(_section("6.1"), r"R[\d.]+")


def test_the_specification_lists_every_rule_of_the_code_in_its_order() -> None:
    specified = [(number, reason.strip("`"), verdict_) for number, _, verdict_, reason, _ in SPECIFIED]
    coded = [(rule.number, str(rule.reason), verdict(rule.reason).upper()) for rule in Rule]
    assert specified == coded


def test_numbers_ascend_so_that_no_number_means_two_rules() -> None:
    numbers = [tuple(map(int, rule.number.removeprefix("R").split("."))) for rule in Rule]
    assert numbers == sorted(set(numbers))
    assert [rule.stage for rule in Rule] == [number[0] for number in numbers]


def test_every_rule_states_its_condition_and_the_attacks_it_stops() -> None:
    attacks = {row[0] for row in _rows(THREATS, r"\d+")}
    for number, demand, _, _, stops in SPECIFIED:
        assert demand, number
        assert set(stops.split(", ")) <= attacks, number


def test_the_specification_lists_every_reason_with_its_verdict_and_evidence() -> None:
    specified = {reason.strip("`"): (outcome, paid) for reason, outcome, paid, _ in _reasons()}
    coded = {str(r): (c.verdict.upper(), EVIDENCE[c.evidence]) for r, c in CONSEQUENCES.items()}
    assert specified == coded


def _reasons() -> list[list[str]]:
    return _rows(_section("6.4"), r"`\w+`")


def test_the_verification_page_lists_every_reason() -> None:
    rows = {row[0].strip("`"): row[1] for row in _rows(VERIFICATION, r"`\w+`") if len(row) == 4}
    assert rows == {str(reason): consequence.verdict.upper() for reason, consequence in CONSEQUENCES.items()}


def test_the_order_of_checks_names_every_rule_before_forwarding() -> None:
    ordered = set(re.findall(r"R\d+(?:\.\d+)+", _section("6.2")))
    before = {rule for rule in Rule if rule.stage <= 7}
    elsewhere = {Rule.CONNECTION_BUDGET, Rule.RESPONSE_TYPES}  # no message breaks these
    assert ordered == {rule.number for rule in before - elsewhere}


@pytest.mark.parametrize("rule", list(Rule), ids=str)
def test_every_rule_is_cited_by_the_code_that_checks_it(rule: Rule) -> None:
    citing = re.compile(rf"\bRule\.{rule.name}\b|{re.escape(rule.number)}(?![\d.]*\d)")
    assert any(citing.search(source) for source in SOURCES)


REACHED = {
    message["rule"]
    for name in admission_files()
    for case in load(name)["cases"]
    for message in case["messages"]
} | {vector["rule"] for vector in load("responses")["responses"]}


@pytest.mark.parametrize("rule", list(Rule), ids=str)
def test_every_rule_has_a_vector_or_a_named_test(rule: Rule) -> None:
    """Vectors end where forwarding begins; they know no connection either."""
    if 1 <= rule.stage <= 7 or rule is Rule.MESSAGE_SIZE:
        assert rule.number in REACHED
        return
    [row] = _rows(VERIFICATION, f"`{rule.reason}`")
    assert re.search(r"`test_\w+\.py::test_\w+`", row[3]), f"verification/README.md: {rule.reason}"


def test_vectors_expect_no_other_rules() -> None:
    assert REACHED - {None} <= {rule.number for rule in Rule}


def test_the_index_of_rules_is_up_to_date() -> None:
    renew = "renew it with: python tests/architecture/rules_page.py"
    assert PAGE.read_text(encoding="utf-8") == page(), renew


def test_the_index_leads_from_every_rule_to_its_code_and_a_test() -> None:
    rows = {row[0]: row for row in _rows(page(), r"R[\d.]+")}
    assert list(rows) == [rule.number for rule in Rule]
    assert [number for number, row in rows.items() if "`" not in row[4]] == []
    assert [number for number, row in rows.items() if not re.search(r"vector|::test_", row[5])] == []
