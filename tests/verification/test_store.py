"""The database: writers append, somebody else waits for the disk, and nothing is lost on the way."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sapo_verification.store import checkpoint, open_database

SCHEMA = "CREATE TABLE IF NOT EXISTS note (text TEXT)"


def notes_in_the_file_alone(path: Path) -> list[str]:
    """What the database file holds without its log."""
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM note")]


def test_writers_append_and_a_checkpoint_copies(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, SCHEMA)) as writer:
        checkpoint(path)
        for number in range(2000):  # twice what SQLite's own default would have copied
            writer.execute("INSERT INTO note VALUES (?)", (f"{number}" + "." * 4096,))
        assert notes_in_the_file_alone(path) == []
        assert checkpoint(path) > 2000
        assert len(notes_in_the_file_alone(path)) == 2000


def test_a_checkpoint_does_not_wait_for_a_writer_nor_touch_what_it_has_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, SCHEMA)) as writer:
        writer.execute("INSERT INTO note VALUES ('kept')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO note VALUES ('undone')")
        checkpoint(path)
        writer.execute("ROLLBACK")
        assert notes_in_the_file_alone(path) == ["kept"]
