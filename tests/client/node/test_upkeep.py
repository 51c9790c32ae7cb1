"""Upkeep: what the node writes gets into its file while the node goes on writing."""

from contextlib import closing
from pathlib import Path

import trio
from support.nodes import until

from sapo_client.node.upkeep import keep_log_short
from sapo_verification.store import open_database


async def test_the_log_is_copied_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with closing(open_database(path, "CREATE TABLE IF NOT EXISTS note (text TEXT)")) as writer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_log_short, path)
            writer.execute("INSERT INTO note VALUES (?)", ("." * 1_000_000,))
            await until(lambda: path.stat().st_size > 1_000_000)
            writer.execute("INSERT INTO note VALUES (?)", ("." * 1_000_000,))
            await until(lambda: path.stat().st_size > 2_000_000)
            nursery.cancel_scope.cancel()
