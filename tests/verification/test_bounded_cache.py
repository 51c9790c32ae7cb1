"""A cache that is emptied before it exceeds its bound."""

from __future__ import annotations

from sapo_verification.bounded_cache import BoundedCache


def test_it_is_emptied_before_it_exceeds_its_bound() -> None:
    cache = BoundedCache[str, int](2)
    cache["one"], cache["two"] = 1, 2
    cache["two"] = 22  # replaces a result, and drops none
    assert cache == {"one": 1, "two": 22}
    cache["three"] = 3
    assert cache == {"three": 3}
