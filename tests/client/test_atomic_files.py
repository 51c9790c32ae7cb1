"""Files that are replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapo_client.atomic_files import write_atomically


@pytest.mark.parametrize("durable", [False, True])
def test_text_and_bytes_replace_what_was_there(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    write_atomically(path, "grün\n", durable=durable)
    assert path.read_bytes() == "grün\n".encode()
    write_atomically(path, b"\xff\x00", durable=durable)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"\xff\x00"}


def test_what_an_interrupted_writer_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".file.writing").write_text("half of a longer cont")
    write_atomically(tmp_path / "file", "whole")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "whole"}


def test_the_old_content_stays_if_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    (tmp_path / ".file.writing").mkdir()  # in the way, also of a writer who may do anything
    with pytest.raises(OSError, match=r"\.file\.writing"):
        write_atomically(path, "new", durable=True)
    assert path.read_text() == "old"
