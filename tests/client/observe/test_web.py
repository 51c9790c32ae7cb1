"""Numbers in requests to the control port, which any text may stand in for."""

import pytest

from sapo_client.observe.web import WebRequest


def request(text: str) -> WebRequest:
    return WebRequest("GET", "/", f"offset={text}", {"last-event-id": text}, b"", has_token=False)


@pytest.mark.parametrize(
    ("text", "offset", "event"),
    [
        ("12", 10, 12),
        ("7", 7, 7),
        ("", 3, None),
        ("-1", 3, None),
        ("\N{SUPERSCRIPT TWO}", 3, None),
        ("\N{ARABIC-INDIC DIGIT ONE}", 3, None),
        ("9" * 16, 3, None),
    ],
)
def test_a_number_is_read_from_ascii_digits_alone(text: str, offset: int, event: int | None) -> None:
    asked = request(text)
    assert (asked.number("offset", 3, maximum=10), asked.last_event()) == (offset, event)
