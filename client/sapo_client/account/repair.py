"""`sapo repair`: replaces damaged databases of a data directory by copies of their readable rows.

The damaged files are kept beside the new ones. If the signing history may be incomplete, the accounts of this
directory sign nothing more in the present epoch: a slot that was signed and forgotten would be signed twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.observe.events import read_events
from sapo_client.paths import DataDir
from sapo_protocol.contributions import MAX_TURN
from sapo_protocol.epochs import present_epoch
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_verification.errors import NewerDatabaseError
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark, Mark, SigningDatabase
from sapo_verification.store import require_known

_BESIDE: Final = ("", "-wal", "-shm")
"""Endings of the files of one SQLite database."""


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """Result for one database.

    Attributes:
        state: "in order", "replaced", or "newer release", which has written it: it is left as it is.
        aside: where the damaged file is now; none if it was intact.
        kept: rows that were read, by table.
        complete: whether every table was read to its end.
        signs_from_epoch: first epoch in which this directory signs again, if its history is incomplete.
        newer: the tables of a newer release, in a sentence.
    """

    file: str
    state: str
    aside: str | None = None
    kept: dict[str, int] | None = None
    complete: bool = True
    signs_from_epoch: int | None = None
    newer: str | None = None


def repair(data: DataDir, clock: Callable[[], float] = time.time) -> tuple[RepairedFile, ...]:
    """Check the databases of a stopped node, and replace the damaged ones.

    Raises:
        SapoError: a node runs there, there is no data directory, or a file cannot be moved.
    """
    if not data.root.is_dir():
        raise SapoError(
            f"there is no data directory {data.root}",
            hint="name the node's data directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
    with locks.Lock.of_directory(data).held():
        try:
            results = [_repair(path, clock) for path in _databases(data) if path.exists()]
        except OSError as error:
            raise SapoError(
                f"cannot repair {data.root}: {error.strerror}",
                hint="correct its permissions, or free some space, and run this again",
                exit_code=ExitCode.DATA,
            ) from error
        return tuple(
            _protected(result, data, clock) if result.file == data.database.name else result
            for result in results
        )


def _databases(data: DataDir) -> tuple[Path, ...]:
    """Return the databases, once the modules are imported that know the versions of their tables."""
    for module in ("sapo_verification.engine", "sapo_client.ledger.outbox", "sapo_client.observe.outcomes"):
        import_module(module)
    return data.database, data.outbox, data.outcomes


def _repair(path: Path, clock: Callable[[], float]) -> RepairedFile:
    try:
        if _is_intact(path):
            return RepairedFile(path.name, "in order")
    except NewerDatabaseError as error:
        return RepairedFile(path.name, "newer release", newer=str(error))
    stamp = datetime.fromtimestamp(clock(), UTC).strftime("%Y%m%dT%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for ending in _BESIDE:
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    kept, complete = _salvage(aside, path)
    return RepairedFile(path.name, "replaced", aside=str(aside), kept=kept, complete=complete)


def _is_intact(path: Path) -> bool:
    """Whether a database can be read to its end.

    Raises:
        NewerDatabaseError: it can, but a newer release has written it.
    """
    try:
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                return False
            require_known(connection, path)
            return True
    except sqlite3.DatabaseError:
        return False


def _salvage(damaged: Path, target: Path) -> tuple[dict[str, int], bool]:
    """Copy the readable rows into a new file; return rows by table, and whether all were read."""
    kept: dict[str, int] = {}
    complete = True
    try:
        with closing(sqlite3.connect(damaged)) as source:
            schema = source.execute(
                "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            ).fetchall()
            with closing(sqlite3.connect(target)) as copy, copy:
                for kind, name, sql in sorted(schema, key=lambda entry: str(entry[0]) != "table"):
                    if str(name).startswith("sqlite_"):
                        continue
                    copy.execute(sql)
                    if kind == "table":
                        kept[name], whole = _copy_table(source, copy, name)
                        complete = complete and whole
    except sqlite3.DatabaseError:  # not even the list of tables can be read, or two of its rows contradict
        return kept, False
    return kept, complete


def _copy_table(source: sqlite3.Connection, copy: sqlite3.Connection, table: str) -> tuple[int, bool]:
    """Copy a table's rows from the front, and after a damaged page from the back."""
    # the names come from the file itself and are quoted; parameters cannot stand for names
    quoted = '"' + table.replace('"', '""') + '"'
    keys = [row[1] for row in source.execute(f"PRAGMA table_info({quoted})") if row[5]]
    order = ", ".join(f'"{key}" DESC' for key in keys) or "rowid DESC"
    whole = False
    forward = f"SELECT * FROM {quoted}"  # noqa: S608
    for query in (forward, f"{forward} ORDER BY {order}"):
        rows = _Readable(source, query)
        for row in rows:
            marks = ", ".join("?" * len(row))
            copy.execute(f"INSERT OR IGNORE INTO {quoted} VALUES ({marks})", row)  # noqa: S608
        if rows.ended:
            whole = True
            break
    count = copy.execute(f"SELECT count(*) FROM {quoted}").fetchone()  # noqa: S608
    return int(count[0]), whole


class _Readable:
    """Rows of a query up to the first that cannot be read."""

    def __init__(self, source: sqlite3.Connection, query: str) -> None:
        self._source = source
        self._query = query
        self.ended = False

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        try:
            yield from self._source.execute(self._query)
        except sqlite3.DatabaseError:
            return
        self.ended = True


def _protected(result: RepairedFile, data: DataDir, clock: Callable[[], float]) -> RepairedFile:
    """Use up this epoch's slots of this directory's accounts if its signing history is incomplete."""
    if result.complete:
        return result
    data.clean_shutdown.unlink(missing_ok=True)  # the next start listens before it signs
    manifest = kept_manifest(data)
    epoch = present_epoch(manifest, clock())
    signing = SigningDatabase(data.database)
    accounts = {mark.account for mark in signing.marks()} | _accounts(data)
    for account in sorted(accounts):
        epoch = max(epoch, _use_up(signing, manifest, account, epoch))
    return RepairedFile(
        result.file,
        result.state,
        aside=result.aside,
        kept=result.kept,
        complete=False,
        signs_from_epoch=epoch + 1 if accounts else None,
    )


def _use_up(signing: SigningDatabase, manifest: Manifest, account: Account, epoch: int) -> int:
    """Raise an account's marks to the end of an epoch; return the epoch, a later one if it signed later.

    An auditor approves nothing more in its turns up to that epoch: a second root in one turn costs its bond.
    """
    known = signing.mark(manifest.swarm_id, account)
    if known is not None and known.epoch > epoch:
        epoch = known.epoch
    share = known.share if known is not None and known.epoch == epoch else None
    end = manifest.limits_at(epoch).slots_per_epoch
    mark = Mark(manifest.swarm_id, account, epoch=epoch, next_slot=end)
    if share is not None:
        mark = Mark(manifest.swarm_id, account, epoch=epoch, next_slot=max(end, _slot(known)), share=share)
    unknown = ApprovalMark(manifest.swarm_id, account, epoch, MAX_TURN, UNKNOWN_ROOT)
    signing.raise_marks((mark,), (unknown,))
    return epoch


def _slot(mark: Mark | None) -> int:
    return 0 if mark is None else mark.next_slot


def _accounts(data: DataDir) -> set[Account]:
    """Return the accounts for which nodes were started here."""
    found: set[Account] = set()
    for event in read_events(data.events):
        if event["event"] == "node_started":
            try:
                found.add(Account.from_hex(str(event.get("account"))))
            except LocalProtocolError:
                continue
    return found
