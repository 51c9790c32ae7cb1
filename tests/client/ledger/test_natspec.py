"""Every function of the contracts that anyone can call is documented in full."""

import re
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[3] / "contracts" / "src").glob("*.sol"))

FUNCTION = re.compile(
    r"(?P<comment>(?:[ ]*///[^\n]*\n)*)(?P<head>[ ]*(?:function (?P<name>\w+)|constructor)"
    r"\((?P<takes>[^)]*)\)(?P<rest>[^{;]*)[{;])"
)


def _missing(comment: str, takes: str, rest: str) -> list[str]:
    """Return the tags that a function's comment lacks."""
    if "@inheritdoc" in comment:
        return []
    named = [each.split()[-1] for each in takes.split(",") if each.strip()]
    lacking = [f"@param {name}" for name in named if not re.search(rf"@param {name}\b", comment)]
    if "@notice" not in comment and "function" in rest:
        lacking.append("@notice")
    says = re.search(r"@notice (Return|Whether) ", comment)
    if "returns" in rest and "@return" not in comment and not says:
        lacking.append("@return")
    return lacking


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_anyone_can_call_is_documented(path: Path) -> None:
    found = list(FUNCTION.finditer(path.read_text(encoding="utf-8")))
    lacking = {}
    for each in found:
        rest = each["rest"]
        is_open = each["name"] is None or re.search(r"\b(external|public)\b", rest)
        if is_open and (
            tags := _missing(each["comment"], each["takes"], ("function" if each["name"] else "") + rest)
        ):
            lacking[each["name"] or "constructor"] = tags
    assert lacking == {}
    assert found, "a source without functions: the pattern is wrong"
