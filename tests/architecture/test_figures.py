"""The figures of docs/architecture.md stay within their limits."""

from pathlib import Path

from architecture.figures import (
    calls_by_position,
    circles,
    composition_imports,
    modules_by_folder,
    names_used_twice,
    wirings,
)
from architecture.page import FIGURES
from architecture.rooms import upward
from architecture.wire import TRANSPORT, files_to_pool
from trio.testing import MockClock

MAX_ARGUMENTS = 6
ENGINE = "verification/sapo_verification/engine.py"


def _limit(figure: str) -> int:
    return int(FIGURES[figure].limit)


def test_calls_name_their_arguments() -> None:
    assert [place for count, place in calls_by_position() if count > MAX_ARGUMENTS] == []


def test_folders_stay_small() -> None:
    assert [each for each in modules_by_folder() if each[0] > _limit("folder")] == []


def test_the_root_is_small() -> None:
    assert len(composition_imports()) <= _limit("root"), sorted(composition_imports())


def test_class_names_are_unique() -> None:
    assert names_used_twice() == {}


def test_there_is_no_import_cycle() -> None:
    assert circles() == []


def test_no_package_imports_one_above_it() -> None:
    assert upward() == []


def test_the_graph_is_built_once() -> None:
    assert sorted(wirings()) == [ENGINE]


async def test_the_path_from_message_to_pool_has_few_calls(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = await files_to_pool(tmp_path)
    assert len(set(files)) == len(files) > len(TRANSPORT)
    assert len(files) <= _limit("wire"), files
