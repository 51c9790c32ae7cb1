"""The database: its tables have versions, writers append, and nothing is lost on the way."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crashing import CrashingConnection, Killed, WriteBudget

from sapo_verification import store
from sapo_verification.errors import NewerDatabaseError, UnusableDatabaseError
from sapo_verification.store import (
    MAX_LOG_BYTES,
    StoreSchema,
    checkpoint,
    migrate,
    open_database,
    open_for_reading,
)

NOTES = StoreSchema("notes", "CREATE TABLE IF NOT EXISTS note (text TEXT);")

STEPS = {
    "notes": (
        "CREATE TABLE IF NOT EXISTS note (text TEXT);",
        "ALTER TABLE note ADD COLUMN size INTEGER; UPDATE note SET size = length(text);",
        """
        CREATE TABLE text (body TEXT NOT NULL, size INTEGER NOT NULL, mark TEXT DEFAULT ';');
        INSERT INTO text (body, size) SELECT text, size FROM note;
        DROP TABLE note;
        """,
        "CREATE TRIGGER kept BEFORE DELETE ON text BEGIN SELECT 1; SELECT RAISE(ABORT, 'kept'); END;",
    ),
    "marks": (
        "CREATE TABLE IF NOT EXISTS mark (slot INTEGER); CREATE INDEX IF NOT EXISTS by_slot ON mark (slot);",
        "DELETE FROM mark; INSERT INTO mark VALUES (7);",
    ),
}
"""Components with every kind of step: a column, a copied table, a statement that holds a semicolon."""

versions = {component: st.integers(1, len(steps)) for component, steps in STEPS.items()}


def schema(component: str, version: int) -> StoreSchema:
    return StoreSchema(component, *STEPS[component][:version])


def dump(path: Path) -> list[str]:
    """Return all tables and rows of a file."""
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.iterdump())


@cache
def of_versions(**at: int) -> list[str]:
    """Return the contents of a file of given versions with one note written by the oldest version."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new.sqlite"
        for component in sorted(at):
            with closing(open_database(path, schema(component, 1))) as connection:
                if component == "notes":
                    connection.execute("INSERT INTO note (text) VALUES ('four')")
            for version in range(2, at[component] + 1):  # one step at a time
                open_database(path, schema(component, version)).close()
        return dump(path)


@given(st.lists(st.sampled_from(sorted(STEPS)).flatmap(lambda c: st.tuples(st.just(c), versions[c]))))
def test_a_file_opened_by_several_versions_has_the_newest_schema_and_all_rows(
    opened: list[tuple[str, int]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "node.sqlite"
        found = {"marks": 1, "notes": 1}
        for component in found:
            open_database(path, schema(component, 1)).close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO note (text) VALUES ('four')")
        for component, version in opened:
            before = dump(path)
            if version < found[component]:
                with pytest.raises(NewerDatabaseError, match=f"{component} tables have version"):
                    open_database(path, schema(component, version))
                assert dump(path) == before, "a file of a newer version is left as it is"
            else:
                open_database(path, schema(component, version)).close()
            found[component] = max(found[component], version)
        assert dump(path) == of_versions(**found)


@given(versions["notes"], versions["notes"], versions["marks"], st.integers(0, 20))
def test_a_migration_that_is_killed_leaves_the_old_or_the_new_version(
    old: int, new: int, marks: int, writes: int
) -> None:
    old, new = sorted((old, new))
    targets = (schema("notes", new), schema("marks", marks))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "node.sqlite"
        with closing(open_database(path, schema("notes", 1), schema("marks", 1))) as connection:
            connection.execute("INSERT INTO note (text) VALUES ('four')")
        open_database(path, schema("notes", old)).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            crashing = cast(sqlite3.Connection, CrashingConnection(connection, WriteBudget(writes)))
            with suppress(Killed):
                migrate(crashing, path, *targets)
        assert dump(path) in [
            of_versions(notes=old, marks=1),
            of_versions(notes=new, marks=marks),
        ]
        open_database(path, *targets).close()
        assert dump(path) == of_versions(notes=new, marks=marks)


def test_tables_from_before_there_were_versions_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("CREATE TABLE note (text TEXT)")
        old.execute("INSERT INTO note VALUES ('four')")
    with closing(open_for_reading(path, schema("notes", 1))) as reader:
        assert reader.execute("SELECT * FROM note").fetchall() == [("four",)]
    open_database(path, schema("notes", 4)).close()
    assert dump(path) == of_versions(notes=4)


def test_a_step_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    open_database(path, schema("notes", 1)).close()
    before = dump(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        open_database(path, StoreSchema("notes", STEPS["notes"][0], "CREATE TABLE a (b); DROP TABLE absent;"))
    assert dump(path) == before


@pytest.mark.parametrize("script", ["CREATE TABLE a (b)", "CREATE TABLE a (b); DELETE FROM a"])
def test_an_incomplete_script_is_refused(tmp_path: Path, script: str) -> None:
    with pytest.raises(ValueError, match="not a complete SQL statement"):
        open_database(tmp_path / "node.sqlite", StoreSchema("notes", script))


def test_a_reader_refuses_a_newer_file_and_writes_to_none(tmp_path: Path) -> None:
    path = tmp_path / "a folder?" / "node.sqlite"
    path.parent.mkdir()
    open_database(path, schema("notes", 2)).close()
    with pytest.raises(NewerDatabaseError) as refused:
        open_for_reading(path, schema("notes", 1))
    assert (refused.value.path, refused.value.component) == (str(path), "notes")
    with (
        closing(open_for_reading(path, schema("notes", 2))) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("DELETE FROM note")


def test_a_current_file_is_not_locked_by_opening_it(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, NOTES)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO note VALUES ('four')")
        open_database(path, NOTES).close()
        writer.execute("COMMIT")


@pytest.mark.parametrize("pauses", [1, store.WAL_ATTEMPTS - 1, store.WAL_ATTEMPTS])
def test_a_new_file_that_another_process_locks_is_waited_for(
    pauses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waited = tmp_path / "node.sqlite", []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        def pause(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == pauses:
                other.execute("ROLLBACK")

        monkeypatch.setattr(store, "sleep", pause)
        if pauses < store.WAL_ATTEMPTS:
            open_database(path, NOTES).close()
        else:
            with pytest.raises(UnusableDatabaseError, match="locked"):
                open_database(path, NOTES)
    assert waited == [store.WAL_PAUSE] * min(pauses, store.WAL_ATTEMPTS - 1)


def run_together(programs: Sequence[str]) -> list[int]:
    """Return the exit codes of Python programs that run at the same time."""
    children = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    return [child.wait() for child in children]


def test_processes_that_open_a_new_file_at_once_make_its_tables_once(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    program = (
        "from sapo_verification.store import StoreSchema, open_database\n"
        f"schemas = [StoreSchema(component, *steps) for component, steps in {STEPS!r}.items()]\n"
        f"open_database({str(path)!r}, *schemas)"
    )
    assert run_together([program] * 4) == [0] * 4
    with closing(open_database(path, schema("notes", 4), schema("marks", 2))) as connection:
        assert connection.execute("SELECT * FROM mark").fetchall() == [(7,)]


def test_only_the_store_connects_to_files() -> None:
    """All others open their tables through it, so all have a version; repair reads damaged ones."""
    root = Path(__file__).parents[2]
    sources = [
        p for package in ("protocol", "verification", "client") for p in (root / package).rglob("*.py")
    ]
    connecting = [p for p in sources if "sqlite3.connect(" in p.read_text(encoding="utf-8")]
    assert sorted(connecting) == [
        root / "client/sapo_client/account/repair.py",
        root / "verification/sapo_verification/store.py",
    ]


def notes_in_the_file_alone(path: Path) -> list[str]:
    """Return the notes in the database file without its log."""
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM note")]


def test_writers_append_and_a_checkpoint_copies(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, NOTES)) as writer:
        checkpoint(path)
        for number in range(2000):  # twice what SQLite's own default would have copied
            writer.execute("INSERT INTO note VALUES (?)", (f"{number}" + "." * 4096,))
        assert notes_in_the_file_alone(path) == []
        assert checkpoint(path) > 2000
        assert len(notes_in_the_file_alone(path)) == 2000


def test_a_checkpoint_neither_waits_for_a_writer_nor_copies_uncommitted_rows(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, NOTES)) as writer:
        writer.execute("INSERT INTO note VALUES ('kept')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO note VALUES ('undone')")
        checkpoint(path)
        writer.execute("ROLLBACK")
        assert notes_in_the_file_alone(path) == ["kept"]


def test_a_log_that_was_copied_is_cut(tmp_path: Path) -> None:
    """Without a limit the file stays as long as the log ever was: 70 MB after a busy quarter of an hour."""
    path = tmp_path / "node.sqlite"
    connection = open_database(path)
    connection.execute("CREATE TABLE text (content BLOB)")
    for _ in range(20):
        connection.execute("INSERT INTO text VALUES (zeroblob(1048576))")
    log = path.with_name("node.sqlite-wal")
    assert log.stat().st_size > 2 * MAX_LOG_BYTES
    checkpoint(path)
    connection.execute("INSERT INTO text VALUES (x'00')")
    assert log.stat().st_size <= MAX_LOG_BYTES
    connection.close()
