"""Fields of a node's events with the types that a test expects of them."""

from sapo_client.observe.events import Event
from sapo_client.observe.plain import JSON


def number(value: JSON) -> float:
    """Return a number."""
    assert isinstance(value, int | float), value
    return value


def numbers(value: JSON) -> list[float]:
    """Return a list of numbers."""
    assert isinstance(value, list), value
    return [number(each) for each in value]


def objects(value: JSON) -> list[Event]:
    """Return a list of objects."""
    assert isinstance(value, list), value
    found = [item for item in value if isinstance(item, dict)]
    assert len(found) == len(value), value
    return found
