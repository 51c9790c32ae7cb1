"""The bound on nesting, which holds whatever libraries do to Python's recursion limit."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.json_text import MAX_JSON_DEPTH, require_shallow

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def _depth(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(_depth, value), default=0)
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
    return 0


@given(documents)
def test_the_depth_is_that_of_the_document(document: object) -> None:
    text = json.dumps(document)
    if _depth(document) <= MAX_JSON_DEPTH:
        assert require_shallow(text) == text
    else:
        with pytest.raises(LocalProtocolError):
            require_shallow(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '["]",' * 100_000, '["\\"]",' * 20])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        require_shallow(text)


def test_brackets_in_strings_do_not_count() -> None:
    text = json.dumps(["[" * 1000, "{" * 1000, '\\"[[['])
    assert require_shallow(text) == text
