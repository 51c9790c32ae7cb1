"""docs/architecture.md: page and picture match the present tree."""

import re
from pathlib import Path

import pytest
from architecture.figures import ROOT
from architecture.page import FIGURES, PAGE, PICTURE, filled
from architecture.picture import ROLLOUT_PATH, draw
from architecture.rooms import BY_NAME, ROOMS, room_of, size_of

RENEW = "renew page and picture with: make architecture"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text) == text, RENEW


def test_the_picture_is_up_to_date() -> None:
    assert draw() == PICTURE.read_text(encoding="utf-8"), RENEW


def test_every_room_holds_modules_and_no_box_covers_another() -> None:
    assert [room.name for room in ROOMS if size_of(room) == 0] == []
    for room in ROOMS:
        beside = [other for other in ROOMS if (other.band, other.row) == (room.band, room.row)]
        for other in beside:
            apart = other.column >= room.column + room.span or room.column >= other.column + other.span
            assert apart or other is room, (room, other)


@pytest.mark.parametrize(
    ("room", "file", "_text"), ROLLOUT_PATH, ids=[file for _room, file, _text in ROLLOUT_PATH]
)
def test_each_module_of_the_path_is_in_the_room_that_it_names(room: str, file: str, _text: str) -> None:
    package = file.split("/")[1]
    module = file.removesuffix(".py").partition("/")[2].replace("/", ".")
    assert room_of()[module] == room
    assert module.startswith(package)
    assert room in BY_NAME


def test_tests_named_on_the_page_exist() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    missing = [row.test for row in FIGURES.values() if f"def {row.test}(" not in tests]
    assert missing == []


def test_links_of_the_page_are_valid() -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", PAGE.read_text(encoding="utf-8"))
    files = re.findall(r"`([\w./-]+/[\w.-]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
    assert [file for file in files if not Path(ROOT / file).exists()] == []
