"""Start of a node from a configuration: locks, manifest and suite are checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from sapo_client import locks, logs
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.full_disk import told_of_full_disk
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
from sapo_client.observe.status import RoundSummary
from sapo_client.paths import DataDir


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
    options: RunOptions,
    show: Callable[[RoundSummary], None],
    *,
    roles: Roles | None = None,
) -> int:
    """Run a node until it is stopped; return its exit code.

    Args:
        show: called with the summary of each round.
        roles: parts of the node to replace.

    Raises:
        SapoError: it cannot run; the hint says what its operator can do.
    """
    require_addresses(config)
    data = DataDir(config.data_dir).create()
    observe = config.observe
    log = logs.logging_to(
        data.log, level=observe.log_level, max_bytes=observe.log_max_bytes, keep=observe.log_keep
    )
    lock = locks.lock(data.lock, what=f"data directory {data.root}")
    with told_of_full_disk(data.root), lock, identity.lock(), log:
        require_in_use(data, identity)
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
            )

        try:
            return trio.run(live, open_node, options)
        except BaseExceptionGroup as group:
            if (found := find_sapo_error(group)) is not None:
                raise found from group
            raise


async def live(open_node: Callable[[RunOptions], NodeApp], options: RunOptions) -> int:
    """Run a node until it ends, opening it again whenever the terms of its swarm change.

    Returns:
        The exit code of the last run.
    """
    while True:
        node = open_node(options)
        try:
            exit_code = await node.run()
        except BaseExceptionGroup as group:
            found = find_sapo_error(group)
            if found is not None and found.transient and node.left_early is not None:
                return node.left_early  # nobody waits any more for what it lacks
            raise
        if (again := node.goes_on) is None:
            return exit_code
        options = again
