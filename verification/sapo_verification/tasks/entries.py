"""Types of the entries that generators return, and of the scorers that compare answers with them."""

from collections.abc import Callable, Mapping
from typing import Any

from sapo_protocol.suite import Family

Entry = Mapping[str, Any]
"""An item as ReasoningGYM's generator returns it: question, answer and metadata."""

Scorer = Callable[[str, Entry, Family], bool]
"""Whether an answer solves the item: (answer, entry, family)."""
