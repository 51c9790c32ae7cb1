"""Maintenance: the log is copied into the database file while the node writes."""

import gc
from contextlib import closing
from pathlib import Path

import trio
from support.nodes import until

from sapo_client.node.runtime.upkeep import keep_log_short, start_up_set_aside
from sapo_verification.store import StoreSchema, open_database

NOTES = StoreSchema("notes", "CREATE TABLE IF NOT EXISTS note (text TEXT);")


async def test_the_wal_is_checkpointed_periodically(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, NOTES)) as writer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_log_short, path)
            writer.execute("INSERT INTO note VALUES (?)", ("." * 1_000_000,))
            await until(lambda: path.stat().st_size > 1_000_000)
            writer.execute("INSERT INTO note VALUES (?)", ("." * 1_000_000,))
            await until(lambda: path.stat().st_size > 2_000_000)
            nursery.cancel_scope.cancel()


def test_garbage_collection_skips_objects_of_the_start() -> None:
    before = gc.get_freeze_count()
    with start_up_set_aside():
        assert gc.get_freeze_count() > before + 10_000
        assert len(gc.get_objects()) < 10_000
    assert gc.get_freeze_count() == 0
