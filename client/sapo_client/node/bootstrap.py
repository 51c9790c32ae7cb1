"""Start of a node from a configuration: locks, manifest and suite are checked before anything is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from sapo_client import locks, logs
from sapo_client.config import Config
from sapo_client.config_layers import keep_choices
from sapo_client.errors import ExitCode, SapoError, database_error
from sapo_client.full_disk import disk_full, told_of_full_disk
from sapo_client.key_status import require_in_use
from sapo_client.keystore import Identity
from sapo_client.node.app import NodeApp, RunOptions
from sapo_client.node.auditing.assembly import require_rpc
from sapo_client.node.roles import NO_ROLES, Roles
from sapo_client.node.runtime.host import open_transport, require_addresses
from sapo_client.node.runtime.manifests import (
    is_alone,
    read_manifest,
    require_manifest,
    require_same_suite,
    settle_manifest,
)
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.starting import StopRequested
from sapo_client.observe.status import RoundSummary
from sapo_client.observe.terminal import say
from sapo_client.paths import DataDir, locks_folder, reports_folder

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class NextRun:
    """The options with which a node is opened the next time.

    Attributes:
        options: at first those of the command; after a failure without ``fresh``, and with the steps left.
    """

    options: RunOptions


def require_joinable(config: Config) -> None:
    """Raise if a node with this configuration cannot start; needs no passphrase and changes nothing.

    Raises:
        SapoError: addresses or the manifest are missing, malformed or unusable, no RPC was named, or the
            directory holds a node that trains alone.
    """
    data = DataDir(config.data_dir)
    if config.swarm.manifest is None and data.manifest.exists() and is_alone(read_manifest(data.manifest)):
        raise SapoError(
            f"{data.root} holds a node that trains alone, and no swarm is named",
            hint="to go on alone add --alone (a service: swarm.alone = true in its configuration), or name a"
            " swarm by its link: sapo join 'sapo://...'",
            exit_code=ExitCode.CONFIG,
        )
    require_addresses(config)
    manifest = require_manifest(config.swarm.manifest, data)
    if manifest.has_chain:
        require_rpc(config.ledger, manifest)


def run_node(
    config: Config,
    identity: Identity,
    following: NextRun,
    show: Callable[[RoundSummary], None],
    *,
    roles: Roles | None = None,
    lock: locks.Lock | None = None,
) -> int:
    """Run a node until it is stopped; return its exit code.

    Args:
        following: the options with which it is opened; after a failure, those for the next start.
        show: called with the summary of each round.
        roles: parts of the node to replace.
        lock: of its data directory, if the caller may hold it.

    Raises:
        SapoError: it cannot run; the hint states what its operator can do.
    """
    require_addresses(config)
    data = DataDir(config.data_dir).create()
    observe = config.observe
    log = logs.logging_to(
        data.log, level=observe.log_level, max_bytes=observe.log_max_bytes, keep=observe.log_keep
    )
    lock = lock or locks.Lock.of_directory(data)
    with told_of_full_disk(data.root), lock.held(), identity.lock(data.root), log, _KeptError(data):
        require_in_use(data, identity)
        keep_choices(data, following.options.settings)
        data.config.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")

        def open_node(options: RunOptions) -> NodeApp:
            manifest = settle_manifest(None if config.swarm.alone else config.swarm.manifest, data)
            require_same_suite(manifest)
            return NodeApp(
                config=config,
                identity=identity,
                options=options,
                manifest=manifest,
                data=data,
                open_transport=partial(open_transport, config, identity, manifest),
                show=show,
                roles=roles or NO_ROLES,
                locks=locks_folder(),
            )

        try:
            return trio.run(live, open_node, following, data.root)
        except BaseExceptionGroup as group:
            if (found := find_sapo_error(group)) is not None:
                raise found from group
            raise


@dataclass(frozen=True, slots=True)
class _KeptError:
    """Keeps the error that ends a node for `sapo logs` and `sapo status`: its terminal may be gone."""

    data: DataDir

    def __enter__(self) -> None:
        self.data.last_error.unlink(missing_ok=True)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and (told := _told_afterwards(error, self.data.root)) is not None:
            is_bug = told.exit_code == ExitCode.BUG
            _LOG.error("the node ended: %s; %s", told.text, told.hint, exc_info=error if is_bug else None)
            with suppress(OSError):
                self.data.last_error.write_text(f"{told.text}\n{told.hint}\n", encoding="utf-8")


def _told_afterwards(error: Exception, folder: Path) -> SapoError | None:
    """Return the error of a node for whoever asks later; None of one that passes, or is none."""
    if isinstance(error, StopRequested) or disk_full(error, folder) is not None:
        return None
    if isinstance(error, SapoError):
        return None if error.transient else error
    what = logs.without_secrets(f"{type(error).__name__}: {error}".partition("\n")[0])
    return database_error(error) or SapoError(
        f"this is a bug in sapo: {what}", hint=f"report it with its file in {reports_folder()}"
    )


async def live(open_node: Callable[[RunOptions], NodeApp], following: NextRun, folder: Path) -> int:
    """Run a node until it ends, opening it again whenever the terms of its swarm change.

    Args:
        following: the options with which it is opened; after a failure, those for the next start.
        folder: its data directory.

    Returns:
        The exit code of the last run.

    Raises:
        SapoError: the node has something left to do, and cannot go on.
    """
    while True:
        node = open_node(following.options)
        try:
            with told_of_full_disk(folder):
                exit_code = await node.run()
        except (SapoError, BaseExceptionGroup) as error:
            found = find_sapo_error(error)
            if found is None or not found.transient:
                raise
            if (left := node.left) is None:  # the wait for its missing part has ended
                if found.finding == FindingCode.DISK_FULL:
                    say(f"warning: the node ended without its last records: {found.text}")
                return node.exit_code
            following.options = left
            raise
        if (again := node.goes_on) is None:
            return exit_code
        following.options = again
